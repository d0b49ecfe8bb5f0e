"""Provenance: recipes with what was set, and what differs."""

import json

from folders import RESOLVED, write_run

from rlcli.results.groups import find_members, group_members
from rlcli.results.report import origins

WRITTEN = """\
environment: CartPole-v1
network: {layers: [64, 64]}
policy: {epsilon: {from: 1.0, to: 0.1}}
optimizer: {learning_rate: 0.001}
"""


def groups_of(folder):
    return group_members(find_members(folder, []))


def test_options_are_marked_as_set_changed_or_default(tmp_path):
    run = write_run(tmp_path / "a")
    (run / "recipe.yaml").write_text(WRITTEN)
    (recipe,) = origins.describe_recipes(groups_of(run))
    found = {
        f"{name}.{option.key}": (option.value, option.origin, option.before)
        for name, options in recipe.sections.items()
        for option in options
    }
    assert found["environment.name"] == ("CartPole-v1", "recipe", "")
    assert found["environment.num_envs"] == ("2", "default", "")
    assert found["network.name"] == ("mlp", "default", "")
    assert found["network.layers"] == ("[64, 64]", "recipe", "")
    assert found["policy.epsilon"] == ("1→0.1 linear", "recipe", "")
    assert found["optimizer.learning_rate"] == ("0.0005", "changed", "0.001")


def test_options_of_parts_with_other_names_are_no_differences(tmp_path):
    other = RESOLVED.replace("epsilon_greedy", "boltzmann")
    other = other.replace("epsilon: {name: linear, from: 1.0, to: 0.1}", "heat: 1")
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", resolved=other.replace("[64, 64]", "[8]"))
    found = origins.find_option_differences(groups_of(tmp_path))
    assert found == [
        ("network.layers", ["[64, 64]", "[8]"]),
        ("policy.name", ["epsilon_greedy", "boltzmann"]),
    ]


def test_options_that_only_one_has_are_differences_of_the_same_part(tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", resolved=RESOLVED.replace("[64, 64]", "[64, 64]\n  x: 1"))
    found = origins.find_option_differences(groups_of(tmp_path))
    assert found == [("network.x", ["–", "1"])]


def test_a_name_that_is_a_list_in_a_foreign_recipe_is_a_difference(tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", resolved=RESOLVED.replace("name: mlp", "name: [mlp, x]"))
    found = origins.find_option_differences(groups_of(tmp_path))
    assert found == [("network.name", ["mlp", '["mlp", "x"]'])]


def test_the_facts_of_a_run_are_those_of_its_files(tmp_path):
    write_run(
        tmp_path / "a",
        git={"commit": "abc", "diff": "+1\n", "diff_is_cut": False},
        code={"env.py": {"sha256": "12ab", "source": "/home/me/env.py"}},
        layout={"threads": "one", "devices": 2},
        versions={"jax": "1"},
        frozen={"1": "NaN"},
        init={"file": "/home/me/b.lz4", "sha256": "a1", "seeds": [3], "steps": [9_000]},
    )
    (run,) = origins.describe_runs(groups_of(tmp_path))
    facts = dict(run.facts)
    assert facts["Git"] == "commit abc, with uncommitted changes"
    assert facts["Devices and threads"] == "threads one, devices 2"
    assert facts["Seeds"] == "0, 1" and facts["Frozen seeds"] == "1"
    assert facts["Versions"] == "jax 1"
    source = "b.lz4, seeds 3, at step 9,000, SHA-256 a1"
    assert facts["Started from"] == source
    assert "IQM 12" in facts["Return"]
    assert run.code == [("env.py", "12ab")]
    assert run.diff == "+1\n"
    assert "/home" not in str(run)


def test_a_damaged_run_is_described_as_broken(tmp_path):
    run = write_run(tmp_path / "a")
    (run / "run.json").write_text(json.dumps({"seeds": "x"}))
    (found,) = origins.describe_runs(groups_of(run))
    assert found.status == "broken"


def test_machines_differ_by_field(tmp_path):
    for name in ("a", "b"):
        git = {"commit": name, "diff": ""}
        write_run(tmp_path / name, git=git, versions={"jax": "1", "numpy": name})
    members = find_members(tmp_path, [])
    assert origins.find_machine_differences(members) == [
        ("versions.numpy", ["a", "b"]),
        ("git", ["commit a", "commit b"]),
    ]
