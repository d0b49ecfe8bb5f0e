"""Spaces: distributions by dotted option name, and what is wrong with them."""

import pytest
from wording import mentions

from rlcli.errors import RlcliError
from rlcli.recipe import read_recipe
from rlcli.studies.search.space import check_space, load_space

SPACE = """\
optimizer.learning_rate: {log_uniform: [1e-5, 1e-2]}
replay: {choice: [uniform, {name: prioritized, beta: 1.0}, null]}
replay.alpha:
  uniform: [0.4, 0.8]
  when: {replay: {name: prioritized, beta: 1.0}}
replay.capacity: {int: [100, 1000], step: 300, when: {replay: [uniform, null]}}
network.layers: {choice: [[64], [64, 64]]}
"""


@pytest.fixture
def space(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    return load_space(path)


def test_the_options_keep_their_order_and_their_distributions(space):
    rate, replay, alpha, capacity, layers = space.options
    assert (rate.kind, rate.low, rate.high) == ("log_uniform", 1e-5, 1e-2)
    assert replay.choices == ("uniform", "{name: prioritized, beta: 1.0}", "null")
    assert alpha.when == (("replay", ("{name: prioritized, beta: 1.0}",)),)
    assert capacity.when == (("replay", ("uniform", "null")),)
    assert capacity.edges() == [100, 1000]
    assert layers.choices == ("[64]", "[64, 64]")


def test_a_trial_has_the_options_whose_condition_holds(space):
    values = space.complete({"replay": "{name: prioritized, beta: 1.0}"})
    assert space.settings(values) == (
        "optimizer.learning_rate=1e-05",
        "replay={name: prioritized, beta: 1.0}",
        "replay.alpha=0.4",
        "network.layers=[64]",
    )
    assert "replay.capacity" in space.complete({})


def test_a_random_trial_depends_on_the_seed_and_its_number_only(space):
    draws = [space.draw(0, number) for number in range(200)]
    assert draws == [space.draw(0, number) for number in range(200)]
    assert draws[0] != space.draw(1, 0) != draws[1]
    rates = sorted(draw["optimizer.learning_rate"] for draw in draws)
    assert 1e-5 <= rates[0] < 2e-5 and 5e-3 < rates[-1] <= 1e-2
    assert 1e-4 < rates[100] < 1e-3  # the median is near the geometric mean, 3e-4
    capacities = {draw.get("replay.capacity") for draw in draws}
    assert capacities == {None, 100, 400, 700, 1000}
    for draw in draws:
        assert ("replay.alpha" in draw) == draw["replay"].startswith("{")


def test_another_option_does_not_change_the_values_of_the_others():
    one = {"a": {"uniform": [0, 1]}, "b": {"int": [1, 1000], "log": True}}
    two = {"c": {"choice": [1, 2]}, **one}
    first, second = load_space(one).draw(3, 7), load_space(two).draw(3, 7)
    assert first.items() < second.items()


def test_logarithmic_whole_numbers_are_in_their_range():
    option = load_space({"a": {"int": [1, 64], "log": True}})
    values = [option.draw(0, number)["a"] for number in range(300)]
    assert {type(value) for value in values} == {int}
    assert (min(values), max(values)) == (1, 64)
    assert sum(value <= 8 for value in values) > 120  # half of the ratios


def test_a_grid_has_every_combination_of_the_active_options():
    space = load_space(
        {
            "kind": {"choice": ["a", "b"]},
            "n": {"int": [1, 5], "step": 2, "when": {"kind": "b"}},
            "rate": {"log_uniform": [0.01, 1], "points": 3},
        }
    )
    grid = space.grid()
    assert len(grid) == 3 + 3 * 3
    assert grid[0] == {"kind": "a", "rate": 0.01}
    assert [row["rate"] for row in grid[:3]] == pytest.approx([0.01, 0.1, 1])
    assert [row["n"] for row in grid[3::3]] == [1, 3, 5]


def test_whole_numbers_of_a_grid_are_those_of_the_range():
    space = load_space({"n": {"int": [1, 100], "step": 7, "points": 5}})
    values = [row["n"] for row in space.grid()]
    assert values == [1, 29, 50, 71, 99]
    assert all(map(space["n"].contains, values))


@pytest.mark.parametrize(
    "option",
    [
        {"uniform": [-1e308, 1e308]},
        {"log_uniform": [1e-300, 1e300]},
        {"int": [0, 2**53 + 2]},
        {"int": [-(2**60), 0]},
    ],
)
def test_a_range_in_which_numbers_are_not_exact_is_refused(option):
    with pytest.raises(RlcliError, match="is too wide"):
        load_space({"x": option})


@pytest.mark.slow
def test_a_grid_of_infinitely_many_values_is_refused():
    space = load_space({"a.b": {"uniform": [0, 1]}})
    with pytest.raises(RlcliError, match=r"number of values of `a\.b`") as error:
        space.grid()
    assert mentions(error.value.hint, "`points`", "`a.b: {uniform: [0, 1], points: 5}`")
    with pytest.raises(RlcliError, match="more than 10,000 combinations"):
        load_space({f"a.{n}": {"int": [1, 100]} for n in range(4)}).grid()


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "1: the file is empty", "for example `optimizer.learning_rate"),
        ("{}", "1: the space is empty", "for example `optimizer.learning_rate"),
        ("[a]", "1: expected a mapping, got a list", "for example"),
        ("a.b: 3", "1: `a.b` has no distribution: `3`", "for example"),
        ("a.b: {}", "1: `a.b` has no distribution", "choose from"),
        (
            "a.b: {unifrom: [0, 1]}",
            "1: there is no distribution `unifrom`",
            "`uniform`",
        ),
        ("a: {b: {int: [0, 1]}}", "1: `a` has no distribution", "`a.b: …`"),
        ("a.b: {int: [0, 1], uniform: [0, 1]}", "several distributions: `int` and", ""),
        ("a.b: {int: [0, 1], stp: 2}", "`int` of `a.b` has no option `stp`", "`step`"),
        ("a.b: {uniform: [0, 1], step: 2}", "has no option `step`", "points"),
        ("a.b: {uniform: [0]}", "expected [lowest, highest], got `[0]`", ""),
        ("a.b: {uniform: 5}", "expected [lowest, highest], got `5`", ""),
        ("a.b: {uniform: [0, true]}", "expected [lowest, highest]", ""),
        ("a.b: {uniform: [0, .inf]}", "expected [lowest, highest]", ""),
        ("a.b: {uniform: [1, 1]}", "1 is not less than 1", "`--set a.b=1`"),
        ("a.b: {int: [0, 1.5]}", "expected whole numbers, got `[0, 1.5]`", "uniform"),
        ("a.b: {log_uniform: [0, 1]}", "0 has no logarithm", "begin above 0"),
        ("a.b: {int: [0, 8], log: true}", "0 has no logarithm", "begin above 0"),
        ("a.b: {int: [1, 8], log: 1}", "expected true or false", ""),
        ("a.b: {int: [1, 8], log: true, step: 2}", "both `log` and `step`", "remove"),
        ("a.b: {int: [0, 8], step: 0}", "`step` of `a.b`: expected int ≥ 1", ""),
        ("a.b: {int: [0, 8], points: 1}", "`points` of `a.b`: expected int ≥ 2", ""),
        ("a.b: {choice: []}", "expected a list of values, got `[]`", "for example"),
        ("a.b: {choice: x}", "expected a list of values, got `x`", "for example"),
        ("a.b: {choice: [x, y, x]}", "`x` is listed twice", "remove one"),
        ("a.b: {choice: [1], when: x}", "expected a mapping", "for example"),
        (
            "a.b: {choice: [1], when: {c: 1}}",
            "no option `c` before it",
            "there are none",
        ),
        ("a.b: {choice: [x]}\nc: {int: [0, 1], when: {a.b: z}}", "2: `when` of", "`x`"),
        ("a.b: {choice: [x]}\nc: {int: [0, 1], when: {a.b: []}}", "never `[]`", "`x`"),
        (
            "a: {int: [0, 1]}\nc: {int: [0, 1], when: {a: 1}}",
            "not a `choice`",
            "make it",
        ),
        ("train.seed: {int: [0, 1]}", "`train.seed` cannot be searched", "`--seed`"),
        ("train.evaluate.every: {int: [1, 2]}", "cannot be searched", "--set"),
        ("a..b: {int: [0, 1]}", "`a..b` is not the dotted name", ""),
        ("a=b: {int: [0, 1]}", "`a=b` is not the dotted name", ""),
        ("a: [", ": ", "not valid YAML"),
    ],
)
def test_what_is_no_distribution_is_refused_with_its_line(
    text, message, hint, tmp_path
):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    with pytest.raises(RlcliError) as error:
        load_space(path)
    assert error.value.message.startswith(str(path))
    assert message in error.value.message
    assert "\n" not in error.value.message
    assert hint in error.value.hint


def test_a_missing_file_is_named():
    with pytest.raises(RlcliError, match=r"there is no file `nope\.yaml`"):
        load_space("nope.yaml")


RATE = "optimizer.learning_rate"


@pytest.mark.parametrize(
    ("space", "message", "hint"),
    [
        (
            {"optimizer.learning_rat": {"uniform": [0, 1]}},
            "optimizer `adam` has no option `learning_rat`",
            "did you mean `learning_rate`?",
        ),
        (
            {"optimiser.learning_rate": {"uniform": [0, 1]}},
            "a recipe has no section `optimiser`",
            "optimizer",
        ),
        (
            {RATE: {"uniform": [-1, 1]}},
            "expected float ≥ 0, or a schedule, got `-1.0`",
            "",
        ),
        (
            {"network.layers": {"choice": [[64], ["x"]]}},
            "`layers.0` of network `mlp`: expected int ≥ 1, got `x`",
            "",
        ),
        ({"train.steps": {"uniform": [1000, 2000.5]}}, "got `2000.5`", ""),
        (
            {
                "replay": {"choice": ["uniform", "prioritized"]},
                "replay.alpha": {"uniform": [0, 1]},
            },
            "replay `uniform` has no option `alpha`",
            "choose from",
        ),
        (
            {RATE: {"log_uniform": [1e-4, 1e-2]}, "updater.name": {"choice": ["ppo"]}},
            "the recipe is wrong with `updater.name=ppo`",
            "",
        ),
    ],
)
def test_a_space_is_compared_with_the_recipe(space, message, hint):
    with pytest.raises(RlcliError) as error:
        check_space(read_recipe("dqn_cartpole"), load_space(space))
    assert message in error.value.message
    assert "--set" not in error.value.message
    assert hint in error.value.hint


def test_an_unknown_option_is_named_with_its_line_of_the_space(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(
        "tracer.gamma: {uniform: [0.9, 1]}\noptimizer.rate: {int: [0, 1]}\n"
    )
    with pytest.raises(RlcliError, match=r"space.yaml:2: optimizer `adam` has no"):
        check_space(read_recipe("dqn_cartpole"), load_space(path))


def test_conditional_options_are_checked_where_their_condition_holds():
    space = load_space(
        {
            "replay": {"choice": ["uniform", "prioritized"]},
            "replay.alpha": {"uniform": [0, 1], "when": {"replay": "prioritized"}},
        }
    )
    recipe, needs_trust = check_space(
        read_recipe("dqn_cartpole", ["train.steps=9_000"]), space
    )
    assert not needs_trust
    assert recipe.train.steps == 9_000
    assert recipe.replay is not None and recipe.replay.name == "uniform"


@pytest.mark.parametrize(
    "option",
    [{"int": [0, 10**15]}, {"uniform": [0, 1], "points": 10**12}],
)
def test_a_grid_that_no_memory_can_hold_is_refused_before_it_is_made(option):
    with pytest.raises(RlcliError, match="more than 10,000 combinations"):
        load_space({"x": option}).grid()
