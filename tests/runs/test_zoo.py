"""The policies that come with rlcli."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from policy_files import write_policy
from wording import mentions

import rlcli
from benchmarks.zoo import table
from benchmarks.zoo.__main__ import copies_of_best, halve_precision, zoo_recipes
from benchmarks.zoo.__main__ import write_policy as keep_policy
from rlcli.errors import RlcliError
from rlcli.evaluation import targets
from rlcli.runs import checkpoint, locate, snapshots
from rlcli.runs.description import read_policy_record
from rlcli.runs.locate import locate_policy

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8")
RESULTS = json.loads((ROOT / "benchmarks" / "zoo" / "results.json").read_text())
EXTRAS = {"muzero": "mctx"} | dict.fromkeys(
    ("open_es", "cma_es", "simple_ga"), "evosax"
)


def test_the_page_lists_the_files_with_their_hashes():
    lines = re.findall(r"^\| `zoo/(\w+)` .*\| `([0-9a-f]{64})` \|$", PAGE, re.MULTILINE)
    assert dict(lines) == {
        name: hashlib.sha256(file.read_bytes()).hexdigest()
        for name, file in locate.shipped_policies().items()
    }


def test_the_page_says_what_was_measured():
    assert table.page(zoo_recipes(), RESULTS) == PAGE


@pytest.mark.slow
def test_of_a_recipe_and_its_longer_version_only_the_latter_has_a_policy():
    assert "ppo_breakout_10m" in zoo_recipes() and "ppo_breakout" not in zoo_recipes()
    assert {*locate.shipped_policies()} <= {*zoo_recipes()}


def test_all_files_together_fit_into_5_mb():
    assert (
        sum(f.stat().st_size for f in locate.shipped_policies().values()) <= 5_000_000
    )


@pytest.mark.parametrize("name", locate.shipped_policies())
def test_every_file_is_a_policy_of_its_recipe(name):
    record = read_policy_record(locate.shipped_policies()[name])
    assert record["kind"] == "policy" and len(record["seeds"]) == 1
    resolved = rlcli.show(name) if not name.startswith(tuple(EXTRAS)) else None
    if resolved:
        environment = record["resolved"]["environment"]["name"]
        assert f"name: {environment}" in resolved


@pytest.mark.slow
@pytest.mark.parametrize("name", locate.shipped_policies())
def test_every_file_acts_with_the_code_of_today(name):
    for prefix, module in EXTRAS.items():
        if name.startswith(prefix):
            pytest.importorskip(module)
    policy = rlcli.load(f"zoo/{name}")
    obs, _ = policy.make_env().reset(seed=0)
    action, _ = policy.act(obs)
    assert policy.spaces.action.contains(action)


def test_a_policy_of_the_zoo_acts(folder):
    policy = rlcli.load("zoo/ppo_cartpole")
    result = rlcli.eval("zoo/ppo_cartpole", episodes=4)
    assert policy.file == locate.shipped_policies()["ppo_cartpole"]
    assert result["return"]["mean"] > 475
    assert result["run"] is None


def test_its_description_has_the_hash(folder):
    text = rlcli.show("zoo/ppo_cartpole")
    assert "environment  CartPole-v1" in text
    assert re.search(r"sha256 +" + RESULTS["ppo_cartpole"]["sha256"], text)


def test_a_video_of_it_is_written_to_the_current_folder(folder):
    assert targets.is_policy_path("zoo/ppo_cartpole")
    located = locate_policy("zoo/ppo_cartpole")
    assert targets.default_output(*located, "a.gif") == Path("a.gif")


def test_a_file_of_the_same_name_takes_precedence(folder):
    (folder / "zoo").mkdir()
    own = folder / "zoo" / "ppo_cartpole"
    shutil.copy(locate.shipped_policies()["dqn_cartpole"], own)
    assert locate_policy("zoo/ppo_cartpole")[1] == Path("zoo/ppo_cartpole")
    assert locate_policy("zoo/dqn_acrobot")[1].is_file()  # the others are still there


@pytest.mark.parametrize("name", ["plot", "compare", "resume", "watch", "diff"])
def test_commands_that_need_a_run_say_that_it_has_none(name, folder):
    arguments = ["zoo/ppo_cartpole"] * (2 if name == "diff" else 1)
    with pytest.raises(RlcliError, match="is a policy of the zoo: it has no") as caught:
        getattr(rlcli, name)(*arguments)
    assert "`rlcli eval`" in caught.value.hint


def test_an_unknown_name_is_answered_with_the_closest_and_all(folder):
    with pytest.raises(RlcliError, match="no policy `zoo/ppo_cartpol`") as caught:
        rlcli.show("zoo/ppo_cartpol")
    assert mentions(caught.value.hint, "did you mean", "`zoo/ppo_cartpole`")
    assert "dqn_acrobot" in caught.value.hint


def test_a_large_policy_is_stored_in_half_precision(tmp_path, monkeypatch):
    recipe = {
        "environment": "CartPole-v1",
        "updater": "ppo",
        "network": {"layers": [4]},
    }
    source = write_policy(tmp_path, recipe, seeds=(3, 5))
    monkeypatch.setattr("benchmarks.zoo.__main__.MAX_FLOAT32", 0)
    target = tmp_path / "kept.pkl.lz4"
    keep_policy(source, target, 1)
    stored = checkpoint.read(target)["acting"]
    loaded, original = map(snapshots.load_snapshot, (target, source))
    assert loaded.seeds == (5,)
    for name, leaf in loaded.acting.items():
        assert stored[name].dtype == np.float16 and leaf.dtype == np.float32
        np.testing.assert_allclose(leaf[0], original.acting[name][1], rtol=1e-3)
    assert rlcli.load(target).seed == 5


def test_numbers_that_are_too_large_keep_their_precision():
    large = np.array([1e6], np.float32)
    assert halve_precision(large) is large


def test_of_a_population_only_the_best_member_is_kept():
    acting = {
        "best/w": np.array([[1.0, 2.0]], "f4"),
        "members/w": np.arange(8, dtype="f4").reshape(1, 4, 2),
        "members/other": np.zeros((1, 4), "f4"),
    }
    copies = copies_of_best(acting)
    assert {*copies} == {"members/w"}
    np.testing.assert_array_equal(copies["members/w"], [[[1.0, 2.0]] * 4])
