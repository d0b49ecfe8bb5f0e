"""Extending: recipes that build on others, and where errors say a value stands."""

from __future__ import annotations

import json

import pytest
from wording import mentions

import rlcli
from rlcli import recipe
from rlcli.errors import RlcliError
from rlcli.recipe import documents, read_recipe
from rlcli.recipe.merging import find_changes

BASE = """\
environment: {name: CartPole-v1, num_envs: 4}
network: {name: mlp, layers: [8], head: {dueling: true}}
tracer: {name: n_step, n: 3, gamma: 0.9}
replay: {name: uniform, capacity: 900}
updater: {name: q_learning, target: {every: 7}}
optimizer: {name: sgd, learning_rate: {from: 0.1, to: 0.0}}
train: {steps: 5_000, log: {every: 9}, evaluate: {every: 70, episodes: 3}}
extra: {name: base, mine: 1}
"""


@pytest.fixture
def write(folder):
    """Writes `base.yaml` and, in another folder, what a test needs."""
    (folder / "base.yaml").write_text(BASE)

    def write(text, name="mine.yaml"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return name

    return write


def merged(write, change):
    return read_recipe(write(f"extends: base.yaml\n{change}")).merged_document.data


def refusal(*words, **keywords):
    with pytest.raises(RlcliError) as caught:
        recipe.load_recipe(*words, **keywords)
    return caught.value


@pytest.mark.parametrize(
    ("change", "place", "expected"),
    [
        ("", "tracer", {"name": "n_step", "n": 3, "gamma": 0.9}),
        ("tracer: {n: 5}", "tracer", {"name": "n_step", "n": 5, "gamma": 0.9}),
        ("tracer: n_step", "tracer", {"name": "n_step", "n": 3, "gamma": 0.9}),
        ("tracer: {name: lambda_return}", "tracer", {"name": "lambda_return"}),
        ("tracer: null", "tracer", None),
        ("replay: null", "replay", None),
        ("updater: {target: {polyak: 1}}", "updater.target", {"polyak": 1}),
        ("network: {head: {noisy: true}}", "network.layers", [8]),
        (
            "network: {head: {noisy: true}}",
            "network.head",
            {"dueling": True, "noisy": True},
        ),
        ("network: {head: quantile}", "network.head", "quantile"),
        ("optimizer: {learning_rate: {from: 1, to: 0}}", "optimizer.name", "sgd"),
        ("train: {steps: 6}", "train.log", {"every": 9}),
        ("train: {evaluate: {every: 8}}", "train.evaluate.episodes", 3),
        ("train: {log: null}", "train.log", None),
        ("extra: {name: own}", "extra", {"name": "own", "mine": 1}),
        ("normalize: {reward: true}", "normalize", {"reward": True}),
        ("environment: {each: {length: [1]}}", "environment.each", {"length": [1]}),
        # One part for all functions, and a part for each.
        ("optimizer: {q: {momentum: 0.5}}", "optimizer.q", {"momentum": 0.5}),
        ("optimizer: {q: {momentum: 0.5}}", "optimizer.default.name", "sgd"),
        ("network: {q: {layers: [4]}}", "network.default.head", {"dueling": True}),
        ("network: {shared: mlp, q: {}}", "network", {"shared": "mlp", "q": {}}),
    ],
)
def test_a_recipe_changes_its_base_part_by_part(write, change, place, expected):
    value = merged(write, change)
    assert "extends" not in value
    for key in place.split("."):
        value = value[key]
    assert value == expected


def test_an_option_without_a_function_changes_the_parts_of_all_functions(write):
    write("network: {policy: mlp, value: {name: mlp, layers: [8]}}\n", "base.yaml")
    layers = merged(write, "network: {layers: [4], activation: tanh}")["network"]
    changed = {"name": "mlp", "layers": [4], "activation": "tanh"}
    assert layers == {"policy": changed, "value": changed}
    assert merged(write, "network: linear")["network"] == "linear"
    heads = "network: {shared: {name: mlp, layers: [8]}, policy: {}}\n"
    write(heads, "base.yaml")
    shared = merged(write, "network: {layers: [4]}")["network"]
    assert shared == {"shared": {"name": "mlp", "layers": [4]}, "policy": {}}


def test_an_extended_recipe_is_read_like_the_one_it_stands_for(write):
    read = recipe.load_recipe(write("extends: base.yaml\ntracer: {n: 5}\n"))
    assert read.name == "mine" and read.tracer.options == {"n": 5, "gamma": 0.9}
    whole = recipe.load_recipe(write(BASE.replace("n: 3", "n: 5"), "whole.yaml"))
    assert read == whole


def test_a_base_is_a_shipped_name_or_a_path_beside_the_file_or_a_list(write):
    mine = write("extends: ../base.yaml\n", "folder/mine.yaml")
    assert recipe.load_recipe(mine).replay.options["capacity"] == 900
    assert recipe.load_recipe(write("extends: dqn_cartpole\n")) == recipe.load_recipe(
        "dqn_cartpole"
    )
    write("tracer: {gamma: 0.5}\ntrain: {steps: 7_000}\n", "longer.yaml")
    mine = write("extends: [dqn_cartpole, longer.yaml]\ntrain: {seeds: 2}\n")
    read = recipe.load_recipe(mine)
    assert read.tracer.options == {"n": 8, "gamma": 0.5}
    assert (read.train.steps, read.train.seeds) == (7_000, 2)
    assert read.train.updates == recipe.load_recipe("dqn_cartpole").train.updates
    assert recipe.load_recipe(write("extends: folder/mine.yaml\n")).train.steps == 5_000


def test_settings_apply_after_merging(write):
    mine = write("extends: base.yaml\ntracer: {n: 5}\n")
    read = recipe.load_recipe(mine, ["tracer.n=6", "train.seeds=2"])
    assert read.tracer.options == {"n": 6, "gamma": 0.9} and read.train.seeds == 2
    error = refusal(mine, ["tracer.gama=6"])
    assert error.message.startswith("--set tracer.gama=6: ")
    error = refusal(mine, ["extends=dqn_cartpole"])
    assert mentions(error.message, "--set extends=dqn_cartpole: ", "no effect")


def test_data_extends_recipes_by_name_or_from_the_working_directory(write):
    data = {"extends": ["dqn_cartpole", "base.yaml"], "tracer": {"n": 2}}
    assert recipe.load_recipe(data).tracer.options == {"n": 2, "gamma": 0.9}
    error = refusal({**data, "tracer": {"gamma": 5}})
    assert error.message.startswith("`gamma` of tracer `n_step`")


@pytest.mark.parametrize(
    ("base", "mine", "where"),
    [
        ("", "tracer: {gama: 1}", "mine.yaml:2: tracer `n_step` has no option `gama`"),
        ("n: 3", "tracer: {gamma: 1}", "base.yaml:3: `n` of tracer `n_step`"),
        ("every: 9", "train: {log: {}}", "base.yaml:7: `every` of `log`"),
        ("[8]", "network: {q: {}}", "base.yaml:2: `layers.0` of network `mlp`"),
        ("", "network: {q: {layers: x}}", "mine.yaml:2: `layers` of network `mlp`"),
        ("", "\nnetwork: {head: {noisy: 5}}", "mine.yaml:3: `noisy` of head `scalar`"),
        ("n_step", "tracer: {gamma: 1}", "base.yaml:3: there is no tracer `x`"),
        ("", "wibble: 1", "mine.yaml:2: a recipe has no section `wibble`"),
        ("CartPole-v1", "environment: {num_envs: 1}", "base.yaml:1: there is no envir"),
    ],
)
def test_an_error_names_the_file_and_line_of_its_value(write, base, mine, where):
    wrong = {"n: 3": "n: x", "every: 9": "every: x", "[8]": "[x]", "n_step": "x"}
    write(
        BASE.replace(base, wrong.get(base, "Cartx"), 1) if base else BASE, "base.yaml"
    )
    assert refusal(write(f"extends: base.yaml\n{mine}\n")).message.startswith(where)


def test_a_part_written_as_its_name_keeps_its_line(write):
    write("environment: CartPole-v1\ntracer: n_stp\nupdater: ppo\n", "base.yaml")
    error = refusal(write("extends: base.yaml\n\n\ntracer: {gamma: 0.5}\n"))
    assert mentions(error.message, "base.yaml:2: there is no", "`n_stp`")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "\nextends: dqn_cartpol",
            "2: there is no recipe `dqn_cartpol` to",
            "cartpole`?",
        ),
        ("extends: base", "1: there is no recipe `base` to extend", "`base.yaml`?"),
        ("extends: [base.yaml,\n no/x.yaml]", "2: there is no recipe `no/x.y", "write"),
        ("extends: mine.yaml", "1: recipes extend each other: `mine.yaml` →", "remove"),
        ("extends: 5", "1: `extends`: expected a name or a list of names", "write"),
        ("extends: [5]", "1: `extends`: expected a name, got `5`", "write"),
        ("extends: {name: x}", "1: `extends`: expected a name or a list", "write"),
    ],
)
def test_a_base_that_cannot_be_read_is_refused_with_its_line(
    write, text, message, hint
):
    error = refusal(write(f"{text}\n"))
    assert error.message.startswith(f"mine.yaml:{message}") and hint in error.hint


def test_recipes_that_extend_each_other_are_refused_with_the_circle(write):
    write("extends: [base.yaml, a.yaml]\n", "b.yaml")
    write("\nextends: b.yaml\n", "a.yaml")
    error = refusal(write("extends: a.yaml\n"))
    assert mentions(error.message, "b.yaml:1: ", "`a.yaml`", "`b.yaml`", "`a.yaml`")


def test_a_base_may_be_extended_twice_and_is_read_once(write, monkeypatch):
    write("extends: base.yaml\ntracer: {n: 4}\n", "a.yaml")
    write("extends: base.yaml\nreplay: {capacity: 5_000}\n", "b.yaml")
    paths, load = [], documents.load_document
    monkeypatch.setattr(
        documents, "load_document", lambda path: paths.append(path) or load(path)
    )
    read = recipe.load_recipe(write("extends: [a.yaml, b.yaml]\n"))
    assert read.tracer.options["n"] == 3  # of `base.yaml`, by way of `b.yaml`
    assert [path.name for path in paths].count("base.yaml") == 1


def test_too_many_bases_are_refused(write):
    for index in range(60):
        write(f"extends: {index + 1}.yaml\n", f"{index}.yaml")
    assert "more than 50 base recipes" in refusal("0.yaml").message


def test_a_base_that_is_no_plain_yaml_is_refused(write):
    write("tracer: !!python/name:os.system\n", "base.yaml")
    assert "base.yaml:1: " in refusal(write("extends: base.yaml\n")).message


@pytest.mark.parametrize("part", ["[1]", "{name: [1]}", "{name: {a: 1}}", "3", "true"])
@pytest.mark.parametrize("kind", ["network", "optimizer"])
def test_a_base_whose_part_is_none_is_refused_like_any_other(write, kind, part):
    text = f"environment: CartPole-v1\nupdater: ppo\n{kind}: {part}\n"
    write(text, "odd.yaml")
    mine = f"extends: odd.yaml\n{kind}: {{policy: {{}}}}\n"
    try:
        assert recipe.load_recipe(write(mine))  # mine may replace it
    except RlcliError as error:
        assert "odd.yaml:3: " in error.message or "mine.yaml:2: " in error.message


def test_a_stored_recipe_reads_no_base(write):
    for trusted in (True, False):
        error = refusal({"extends": "base.yaml"}, is_stored=True, trusted=trusted)
        assert error.message == "`extends` has no effect here"


TEXT = "# Mine.\n# Really.\nextends: base.yaml\ntracer: {n: 2}  # less\n"


def test_the_text_of_a_recipe_for_its_run_is_complete_without_the_bases(write):
    read = recipe.load_recipe(write(TEXT))
    first = "# Mine.\n# Really.\n# Complete, with all options of base.yaml.\n"
    assert read.document.text.startswith(f"{first}environment: ")
    assert recipe.load_recipe(write(read.document.text, "kept.yaml")) == read


@pytest.mark.slow
def test_a_run_lives_on_without_the_bases_of_its_recipe(write, tmp_path):
    mine, run = write(TEXT), tmp_path / "run"
    rlcli.train(mine, smoke=True, quiet=True, run=run)
    expected = recipe.load_recipe(mine)
    for name in ("base.yaml", "mine.yaml"):
        (tmp_path / name).unlink()
    assert recipe.load_recipe(run / "recipe.yaml") == expected
    assert rlcli.show(str(run / "resolved.yaml")).startswith("environment:\n")
    rlcli.resume(run, quiet=True)
    assert rlcli.eval(run, episodes=1)["environment"] == "CartPole-v1"


def test_show_prints_only_what_differs_from_the_bases(write):
    change = "tracer: {n: 5}\nnetwork: {head: {noisy: true}}\nreplay: prioritized\n"
    mine = write(f"extends: base.yaml\n{change}train: {{log: null, steps: 5e3}}\n")
    shown = rlcli.show(mine, diff_from_base=True)
    assert documents.load_document(shown).data == {
        "network": {"head": {"noisy": True}},
        "tracer": {"n": 5},
        "replay": recipe.resolve(recipe.load_recipe(mine))["replay"],
        "train": {"log": {"every": None}},
    }
    assert rlcli.show(write("extends: base.yaml\n"), diff_from_base=True) == "{}\n"


@pytest.mark.parametrize("words", [("base.yaml",), ("tracer", "n_step")])
def test_only_a_recipe_with_a_base_differs_from_it(write, words):
    with pytest.raises(RlcliError, match=r"extends no other recipe|takes a recipe"):
        rlcli.show(*words, diff_from_base=True)


def test_bases_that_are_no_recipe_cannot_be_compared_with(write):
    write("train: {steps: 900}\n", "base.yaml")
    mine = write("extends: base.yaml\nenvironment: CartPole-v1\nupdater: ppo\n")
    with pytest.raises(RlcliError, match=r"are incomplete: .* no `environment`"):
        rlcli.show(mine, diff_from_base=True)


CHANGES = [
    "environment: {wrappers: [previous], each: {length: [0.5, 1]}}",
    "environment: {each: {length: [0.5, 1], masspole: [1]}, time_limit: null}",
    "environment: Acrobot-v1",
    "network: {q: {memory: gru}, default: {layers: [2]}}",
    "network: {shared: mlp, q: {noisy: true}}",
    "network: {memory: lstm, preprocess: [flatten]}",
    "optimizer: {q: {clip_norm: 3}}",
    "optimizer: adam",
    "replay: null\ntrain: {start: 0}",
    "train: {stop: {return: 5}, updates: {per_step: 0.5}, checkpoint: null}",
]


@pytest.mark.parametrize("change", CHANGES)
def test_the_difference_from_a_base_makes_the_same_recipe_of_it(write, change):
    base = recipe.resolve(recipe.load_recipe("base.yaml"))
    other = recipe.resolve(
        recipe.load_recipe(
            {**documents.load_document(f"extends: base.yaml\n{change}").data}
        )
    )
    for left, right in ((base, other), (other, base)):
        write(documents.dump_yaml(left), "left.yaml")
        text = documents.dump_yaml(find_changes(left, right))
        again = recipe.load_recipe(write(f"extends: left.yaml\n{text}"))
        assert recipe.resolve(again) == right


@pytest.mark.parametrize("name", ["x" * 252, "x" * 5_000, "a\0b"])
def test_a_base_whose_name_is_no_file_name_is_refused(name, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps({"extends": name}))
    with pytest.raises(RlcliError, match="there is no recipe"):
        recipe.load_recipe(file)
