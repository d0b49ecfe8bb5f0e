"""The file of a study: its cells, and what is wrong with it, by file and line."""

import json
import re
from pathlib import Path

import pytest
from tiers import quick_first

import rlcli
from rlcli.cli import main
from rlcli.errors import RlcliError, quote
from rlcli.recipe import load_recipe, resolve
from rlcli.runs.study_record import discard_cells, find_study, record_study
from rlcli.studies import study_grid
from rlcli.studies.study_file import read_study
from rlcli.studies.study_grid import combine, plan_cells, read_cell

POLE = """
environment: {name: CartPole-v1, num_envs: 4, masspole: 0.2}
network: {name: mlp, layers: [8]}
updater: q_learning
train: {steps: 400}
"""


@pytest.fixture(autouse=True)
def _files(folder):
    (folder / "pole.yaml").write_text(POLE)


def cells(text, **keywords):
    Path("paper.yaml").write_text(text)
    return plan_cells(read_study("paper.yaml", **keywords), Path("here"))


def recipes(text, **keywords):
    return {
        cell.label: load_recipe(read_cell(cell)) for cell in cells(text, **keywords)
    }


def test_a_study_is_a_product_of_its_axes():
    text = """
recipes: [pole.yaml, {name: large, recipe: pole.yaml, set: ["network.layers=[32]"]}]
environments: [CartPole-v1, Acrobot-v1, {name: CartPole-v1, length: 1.5}]
vary: {tracer.gamma: [0.9, 0.95]}
seeds: 3
seed: 100
set: [train.steps=800]
"""
    found = recipes(text)
    assert [*found] == [
        f"{recipe}/{environment}/gamma={gamma}"
        for environment in ("CartPole-v1", "Acrobot-v1", "CartPole-v1-length-1.5")
        for recipe in ("pole", "large")
        for gamma in ("0.9", "0.95")
    ]
    for label, recipe in found.items():
        assert (recipe.train.seed, recipe.train.seeds) == (100, 3)
        assert recipe.train.steps == 800
        assert recipe.num_envs == 4
        assert recipe.tracer.options["gamma"] == float(label[-4:].strip("="))
        layers = [32] if label.startswith("large") else [8]
        assert resolve(recipe)["network"]["layers"] == layers
    own, other, longer = (
        found[f"pole/{name}/gamma=0.9"].environment
        for name in ("CartPole-v1", "Acrobot-v1", "CartPole-v1-length-1.5")
    )
    # An environment of another name has none of the options of the recipe's own.
    assert own.options["masspole"] == longer.options["masspole"] == 0.2
    assert (own.options["length"], longer.options["length"]) == (0.5, 1.5)
    assert other.name == "Acrobot-v1"


def test_an_environment_may_have_a_recipe_of_its_own():
    text = """
recipes: [pole.yaml]
environments: [CartPole-v1, {name: Acrobot-v1, recipe: ppo_cartpole}]
"""
    found = recipes(text)
    assert [*found] == ["pole/CartPole-v1", "ppo_cartpole/Acrobot-v1"]
    assert found["ppo_cartpole/Acrobot-v1"].updater.name == "ppo"
    only = "environments: [{name: Acrobot-v1, recipe: ppo_cartpole}]"
    assert [*recipes(only)] == ["ppo_cartpole"]


def test_what_the_command_sets_comes_after_the_study():
    text = "recipes: [pole.yaml]\nseeds: 3\nset: [train.steps=800]"
    (recipe,) = recipes(
        text, sets=["train.steps=40"], overrides=["train.seeds=2"]
    ).values()
    assert (recipe.train.steps, recipe.train.seeds) == (40, 2)


def test_values_say_what_tells_a_cell_from_the_others():
    text = "recipes: [pole.yaml]\nenvironments: [CartPole-v1, Acrobot-v1]"
    assert [dict(cell.values) for cell in cells(text)] == [
        {"environment": "CartPole-v1"},
        {"environment": "Acrobot-v1"},
    ]


@pytest.mark.parametrize("key", ["environment", "environment.name"])
def test_environments_that_are_varied_have_their_names(key):
    text = f"recipes: [pole.yaml]\nvary: {{{key}: [CartPole-v1, Acrobot-v1]}}"
    assert [dict(cell.values) for cell in cells(text)] == [
        {"environment": "CartPole-v1"},
        {"environment": "Acrobot-v1"},
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recipe: [pole.yaml]", "paper.yaml:1: a study has no key `recipe`"),
        ("seeds: 3", "paper.yaml:1: a study needs `recipes`"),
        ("recipes: pole.yaml", "paper.yaml:1: `recipes`: expected a list"),
        ("recipes:\n- pole.yaml\n- polle", "paper.yaml:3: there is no recipe `polle`"),
        ("recipes: [3]", "paper.yaml:1: expected a recipe, got `3`"),
        ("recipes: [pole.yaml, pole.yaml]", "two of `recipes` are called `pole`"),
        ("recipes: [pole.yaml]\nseeds: 0", "paper.yaml:2: `seeds`: expected a whole"),
        ("recipes: [pole.yaml]\nseed: x", "paper.yaml:2: `seed`: expected a whole"),
        ("recipes: [pole.yaml]\nset: [a]", "paper.yaml:2: expected settings"),
        ("recipes: [pole.yaml]\nvary: {a.b: 3}", "paper.yaml:2: `vary.a.b`: expected"),
        ("recipes: [{recipe: pole.yaml, sets: []}]", "has no key `sets`"),
        (
            "recipes: [pole.yaml]\nreference: {Cart: [0, 1]}",
            "paper.yaml:2: the study has no environment `Cart`",
        ),
        (
            "recipes: [pole.yaml]\nreference: {CartPole-v1: [1, 1]}",
            "paper.yaml:2: expected two different numbers",
        ),
        ("recipes: [pole.yaml]\nreference: [1]", "`reference`: expected a mapping"),
        ("environments: [CartPole-v1]", "`CartPole-v1` has no recipe"),
        ("recipes: [pole.yaml]\nenvironments: [{a: 3}]", "expected an environment"),
        (
            "recipes: [pole.yaml]\nseeds: 2\nvary: {train.seeds: [1, 2]}",
            "paper.yaml:2: `train.seeds` is varied",
        ),
        (
            "recipes: [pole.yaml]\nseeds: 9999999",
            "paper.yaml:2: `seeds` of section `train`: expected 1 ≤ int ≤ 1_000_000",
        ),
        (
            "recipes: [pole.yaml]\nseed: 9999999999",
            "paper.yaml:2: `seed` of section `train`: expected",
        ),
        (
            "recipes: [pole.yaml]\nenvironments: [CartPole-v1]\n"
            "vary: {environment.name: [Acrobot-v1]}",
            "`environment` is varied twice",
        ),
    ],
)
def test_what_is_wrong_is_one_error_with_its_place(text, message):
    with pytest.raises(RlcliError) as error:
        cells(text)
    assert message in error.value.message


def test_a_recipe_and_a_study_are_told_apart(folder):
    Path("paper.yaml").write_text("recipes: [pole.yaml]")
    for read, other in ((rlcli.study, "pole.yaml"), (rlcli.train, "paper.yaml")):
        with pytest.raises(RlcliError) as error:
            read(other)
        assert (
            f"rlcli {'train' if read is rlcli.study else 'study'}" in error.value.hint
        )
    with pytest.raises(RlcliError, match="only a study that has not begun"):
        rlcli.preview_study(folder)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("../../out", "out"),
        (".hidden", "hidden"),
        ("-rf", "rf"),
        ("study.json", "study-json"),
        ("x" * 300, "x" * 80),
    ],
)
def test_a_cell_of_any_name_has_a_folder_in_its_study(name, label):
    recipes = json.dumps([{"name": name, "recipe": "pole.yaml"}, "pole.yaml"])
    found = cells(f"recipes: {recipes}\nenvironments: [CartPole-v1]")
    assert [cell.label for cell in found] == [label, "pole"]


@pytest.mark.slow
def test_a_recipe_with_the_name_of_the_record_is_trained_beside_it():
    recipes = json.dumps([{"name": "study.json", "recipe": "pole.yaml"}, "pole.yaml"])
    Path("paper.yaml").write_text(f"recipes: {recipes}")
    ends = rlcli.study("paper.yaml", run="here", quiet=True)
    assert [each.code for each in ends] == [0, 0]
    assert Path("here/study-json/run.json").is_file()


def test_what_no_memory_can_hold_is_refused_before_it_is_made():
    many = [*range(1, 5_001)]
    axes = f"{{train.seed: {many}, updater.target_period: [1, 2, 3]}}"
    place = r"paper.yaml:2: more than 10,000 combinations"
    with pytest.raises(RlcliError, match=place):
        cells(f"recipes: [pole.yaml]\nvary: {axes}")
    with pytest.raises(RlcliError, match="more than 10,000 combinations"):
        list(combine([f"train.seed={','.join(map(str, many))}", "x.y=1,2,3"]))
    Path("vary.yaml").write_text(f"{POLE}vary: {axes}")
    with pytest.raises(RlcliError, match=r"vary.yaml:6: more than 10,000"):
        rlcli.check("vary.yaml")
    Path("paper.yaml").write_text(f"recipes: [pole.yaml]\nvary: {{train.seed: {many}}}")
    grid = read_study("paper.yaml")
    with pytest.raises(RlcliError, match="more than 10,000 combinations"):
        grid.vary([*combine(["x.y=1,2,3"])])


def test_too_many_cells_are_refused_before_they_are_made(monkeypatch):
    recipes = [{"name": f"r{index}", "recipe": "pole.yaml"} for index in range(101)]
    environments = [{"name": "CartPole-v1", "tau": 0.01 * i} for i in range(1, 51)]
    grid = read_study({"recipes": recipes, "environments": environments})
    grid = grid.vary([("train.seed=1",), ("train.seed=2",)])
    monkeypatch.setattr(study_grid, "check_document", None)
    with pytest.raises(RlcliError, match="more than 10,000 cells"):
        plan_cells(grid, Path("study"))


@pytest.mark.slow
def test_cells_that_cannot_be_trained_are_refused_before_any_begins(folder):
    """DDPG has no actions to choose among, and CartPole nothing else."""
    Path("study.yaml").write_text(
        "recipes: [qlearning_frozenlake, ddpg_pendulum]\n"
        "environments: [FrozenLakeNonSlippery-v0, Pendulum-v1]\n"
    )
    misfits = {
        "qlearning_frozenlake/Pendulum-v1",
        "ddpg_pendulum/FrozenLakeNonSlippery-v0",
    }
    ended = rlcli.study("study.yaml")
    assert {each.cell.label: each.code for each in ended} == dict.fromkeys(misfits, 1)
    found = rlcli.preview_study("study.yaml")
    assert {each.cell.label for each in found if each.error} == misfits
    assert len(found) == 4
    assert [*Path("runs").iterdir()] == []


def test_the_preview_names_programs_and_creates_nothing():
    Path("study.yaml").write_text(
        "recipes: [pole.yaml]\nseeds: 2\n"
        "vary: {tracer.gamma: [0.9, 0.95], network.layers: [[8], [9]]}\n"
    )
    found = rlcli.preview_study("study.yaml")
    programs = {each.cell.label: each.program for each in found}
    assert programs["gamma=0.9,layers=8"] == programs["gamma=0.95,layers=8"]
    assert len({*programs.values()}) == 2
    assert {(each.seeds, each.steps) for each in found} == {(2, 400)}
    assert all(each.memory > 0 and each.seconds is None for each in found)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("text", "place", "message"),
    quick_first(
        [
            ("set:\n- train.steps=800\n- tracer.gama=1", 3, "has no option `gama`"),
            ("environments:\n- CartPole-v1\n- Pole-v1", 3, "no environment `Pole-v1`"),
            ("environments:\n- {name: CartPole-v1, l: 2}", 2, "has no option `l`"),
            ("vary:\n  tracer.gamma: [0.9, 2]", 2, "`gamma` of tracer"),
            (
                "vary:\n- {tracer.gamma: 0.9}\n- {tracer.gamma: 2}",
                3,
                "`gamma` of tracer",
            ),
        ],
        quick=2,
    ),
)
def test_what_a_cell_cannot_be_is_named_with_the_line_of_the_study(
    text, place, message
):
    Path("paper.yaml").write_text(f"{text}\nrecipes: [pole.yaml]\n")
    errors = [each.error for each in rlcli.preview_study("paper.yaml") if each.error]
    assert errors[0].startswith(f"paper.yaml:{place}: ") and message in errors[0]
    ended = rlcli.study("paper.yaml", run="here", quiet=True)
    assert f"error: paper.yaml:{place}: " in "".join(each.message for each in ended)
    assert not Path("here").exists()


def test_a_study_records_its_references():
    environments = "environments: [{name: CartPole-v1, length: 1.5}, Acrobot-v1]"
    reference = {"CartPole-v1,length=1.5": [20, 475], "Acrobot-v1": [-500, -80.5]}
    text = f"recipes: [pole.yaml]\n{environments}\nreference: {json.dumps(reference)}"
    Path("paper.yaml").write_text(text)
    assert read_study("paper.yaml").sections == {"reference": reference}
    with pytest.raises(RlcliError, match="has no environment `CartPole-v1`"):
        cells(text.replace("CartPole-v1,length=1.5", "CartPole-v1"))
    single = environments.replace(", Acrobot-v1", "")
    read = cells(f"recipes: [pole.yaml]\n{single}\nreference: {{CartPole-v1: [0, 9]}}")
    assert [dict(cell.values) for cell in read] == [{}]
    Path("paper.yaml").write_text(text)
    rlcli.study(
        "paper.yaml", run="here", engine="slurm", script="script.sh", quiet=True
    )
    assert find_study("here").sections["reference"] == reference
    other = (
        "recipes: [{name: large, recipe: pole.yaml}]\nreference: {CartPole-v1: [0, 9]}"
    )
    Path("other.yaml").write_text(other)
    rlcli.study("other.yaml", run="here", engine="slurm", quiet=True)
    both = find_study("here").sections["reference"]
    assert both == {**reference, "CartPole-v1": [0, 9]}
    record = Path("here/study.json").read_bytes()
    refused = other.replace("large, ", "wrong, set: ['updater=wrong'], ")
    Path("other.yaml").write_text(refused.replace("[0, 9]", "[0, 8]"))
    ended = rlcli.study("other.yaml", run="here", quiet=True)
    assert any("wrong" in each.message for each in ended if each.cell.label == "wrong")
    assert Path("here/study.json").read_bytes() == record
    # What is there may be damaged, or may change while a study that is refused begins.
    data = json.loads(record)
    Path("here/study.json").write_text(json.dumps({**data, "reference": [1]}))
    rlcli.study("other.yaml", run="here", quiet=True)
    assert find_study("here").sections["reference"] == [1]
    before = find_study("here")
    added = {"reference": {"CartPole-v1": [0, 8]}, "test": {"blocks": (1, 2)}}
    record_study(Path("here"), before.cells, **added)
    record_study(Path("here"), reference={"CartPole-v1": [0, 7]})
    discard_cells([before.cells[0]], added, before.sections, with_parents=0)
    after = find_study("here")
    assert after.sections == {"reference": {"CartPole-v1": [0, 7]}}
    assert after.cells == before.cells[1:]


def test_what_a_study_is_comes_before_its_test():
    """A test is of cells: what they are has to be right first."""
    test = "test: {baselin: pole}"
    pair = "reference: {CartPole-v1: [1, 1]}"
    for line, message in (
        ("recipes: [pole.yaml, pole.yaml]", "two of `recipes` are called"),
        ("recipes: [pole.yaml]\nset: 3", "expected settings"),
        ("recipes: [pole.yaml]\nvary: 3", "`vary`: expected a mapping"),
        (f"recipes: [pole.yaml]\n{pair}", "two different numbers"),
    ):
        both = line if pair in line else f"{line}\n{pair}"
        with pytest.raises(RlcliError, match=message):
            cells(f"{both}\nseeds: 2\n{test}")
    data = {"recipes": ["pole.yaml"], "reference": {"": [0, 1]}}
    with pytest.raises(RlcliError, match="an environment has no name"):
        rlcli.study(data, run="here", quiet=True)


BOTH = "[CartPole-v1, Acrobot-v1]"
LONG = "{name: CartPole-v1, length: 1.5}"
IN_TEST = "test: {baseline: pole, effect: 1, max_seeds: 30, reference: ['NAME=0,9']}"


@pytest.mark.parametrize("section", ["reference: {'NAME': [0, 9]}", IN_TEST])
@pytest.mark.parametrize(
    ("axis", "known"),
    [
        ("", ["CartPole-v1"]),
        ("set: [environment.name=Acrobot-v1]", ["Acrobot-v1"]),
        ("environments: [Acrobot-v1]", ["Acrobot-v1"]),
        (f"environments: [{LONG}]", ["CartPole-v1"]),
        (f"environments: [{LONG}, Acrobot-v1]", ["CartPole-v1,length=1.5"]),
        (f"vary: {{environment.name: {BOTH}}}", ["CartPole-v1", "Acrobot-v1"]),
        (f"vary: {{environment: {BOTH}}}", ["CartPole-v1", "Acrobot-v1"]),
        (f"vary: [{{environment: CartPole-v1}}, {{environment: {LONG}}}]", [
            '{"name": "CartPole-v1", "length": 1.5}']),
        ("--vary environment.name=CartPole-v1,Acrobot-v1", ["Acrobot-v1"]),
        ("--vary environment=Acrobot-v1", ["Acrobot-v1"]),
    ],
)  # fmt: skip
def test_references_are_for_environments_of_cells(section, axis, known, capsys):
    option, _, varied = axis.partition("--vary ")
    given = [varied] if varied else []
    line = f"recipes: [pole.yaml, {{name: large, recipe: pole.yaml}}]\n{option}\n"

    def plan(name):
        text = f"{line}seeds: 5\n{section.replace('NAME', name)}"
        Path("paper.yaml").write_text(text)
        return plan_cells(read_study("paper.yaml").vary([*combine(given)]), Path("n"))

    for name in known:
        assert plan(name)
    for unknown in ("CartPole-v3", known[0][:-1], "other"):
        with pytest.raises(RlcliError, match=f"no environment `{re.escape(unknown)}`"):
            plan(unknown)
    options = [word for text in given for word in ("--vary", text)]
    assert main(["study", "paper.yaml", "--dry-run", *options]) == 1
    error = capsys.readouterr().err
    assert "error: paper.yaml:4: the study has no environment `other`" in error
    assert "hint: choose from " in error and quote(known[0]) in error
