"""Nonsense: extreme and malformed recipes are refused by one short `RlcliError`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from wording import mentions

from rlcli import recipe, registry
from rlcli.assembly import build
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.evaluation.evaluate import replace_environment
from rlcli.recipe import documents, grammar
from rlcli.training.experiment.program import Program

LONGEST = 400  # characters of a message
DIGITS = "9" * 400
NUMBERS = (
    *("0", "-1", "0.5", "1e-50", "1e39", "-1e39", "1e308", ".nan", ".inf", "-.inf"),
    *("2147483647", "2147483648", "-2147483649", "9007199254740993", "1e18"),
    *(DIGITS, f"{DIGITS}.5", f"-{DIGITS}", f"1e{DIGITS}"),
)
SCHEDULES = (
    "{from: %s, to: 1}",
    "{from: 1, to: %s, over: 10}",
    "{from: 1, to: 0, over: %s}",
    "{from: 1, to: 0, over: '%s%%'}",
    "{name: inverse, from: 1, rate: %s}",
    "{name: exponential, from: %s, rate: 1}",
    "{steps: [[0, 1], [%s, 1]]}",
    "{steps: [[0, %s]]}",
)
SHAPES = (
    *("null", "true", "''", "[]", "{}", "[[]]", "{a: {b: [1]}}", "x", "a:b", "/", "-"),
    *("{name: {a: 1}}", "{name: [1]}", "{name: null}", "{name: 5}", "[{name: {}}]"),
    *("x" * 5_000, "{%s: 1}" % ("k" * 5_000), "'\x1b[31m\u202e'", "'a\n\nb'"),
    *("[" * 30 + "]" * 30, "[" * 80 + "]" * 80, "{a: " * 45 + "1" + "}" * 45),
    *(
        "os:system",
        "builtins:print",
        "no_such:thing",
        ":",
        "a:b:c",
        "gymnasium/",
        "x/y",
    ),
)


def refusal(name, sets, builds=False):
    """The error of a recipe with these options, or None if it is accepted.

    Any other exception fails the test.
    """
    try:
        parsed = recipe.load_recipe(name, sets)
        if builds:
            Program(parsed, build(parsed)).check()
    except RlcliError as error:
        assert len(error.message) < LONGEST, error.message
        assert len(error.message.splitlines()) == 1, error.message
        assert DIGITS[:100] not in str(error)
        assert "\x1b" not in str(error)
        return error
    return None


@pytest.mark.parametrize(
    ("each", "words"),
    [
        ("replay.capacity=2147483648", "1 ≤ int ≤ 2_147_483_647"),
        ("replay.batch_size=1e10", "1 ≤ int ≤ 2_147_483_647"),
        ("environment.time_limit=1e12", "1 ≤ int ≤ 2_147_483_647"),
        ("environment.num_envs=3000000000", "1 ≤ int ≤ 2_147_483_647"),
        ("network.layers=[10000000000000]", "`layers.0` of network"),
        ("train.seeds=1e9", "1 ≤ int ≤ 1_000_000"),
        ("train.steps=1e18", "1 ≤ int ≤ 9_007_199_254_740_992"),
        ("train.log.every=1e30", "1 ≤ int ≤ 9_007_199_254_740_992"),
        ("train.unroll=1e12", "1 ≤ int ≤ 2_147_483_647"),
        ("train.updates=1e9", "the run makes 6,250,000,000,000 updates"),
        ("train.updates={per_step: 1e30}", "32-bit counters"),
        ("optimizer.learning_rate=1e39", "that float32 can represent"),
        ("optimizer.clip_norm=1e-50", "> 0 that float32 can represent"),
        ("optimizer.b1=1", "0 ≤ float < 1"),
        ("optimizer.b1=0.99999999999", "< 1 when rounded to float32"),
        (f"train.steps={DIGITS}", "is not a number, or too large"),
        (f"optimizer.learning_rate={{from: {DIGITS}, to: 1}}", "is not a number"),
        (f"environment.each.length=[{DIGITS}.5]", "is not a number"),
        ("network.head={name: {a: 1}}", "`name` of the head: expected str"),
        (
            "network={shared: mlp, q: {name: {a: 1}}}",
            "`name` of the head: expected str",
        ),
        ("network.memory={name: {a: 1}}", "`name` of the memory: expected str"),
        ("network.preprocess=[{name: [1]}]", "`name` of the preprocess: expected str"),
        (
            "environment.wrappers=[{name: {a: 1}}]",
            "`name` of the wrapper: expected str",
        ),
        ("optimizer={q: {name: {a: 1}}}", "`name` of the optimizer: expected str"),
        ("updater=os:system", "module `os` is part of Python"),
        ("environment.wrappers=['builtins:print']", "module `builtins` is part of"),
        (".".join(["extra", *"a" * 100]) + "=1", "nested more than 50 deep"),
        (f"extra={'[' * 5_000}{']' * 5_000}", "nested more than 50 deep"),
        (f"extra=[{'1,' * 30_000}]", "more than 20,000 values"),
        (f"extra={'x' * 1_000_001}", "exceed a recipe's limit of 1,000,000"),
    ],
)
def test_nonsense_is_refused_when_the_recipe_is_read(each, words):
    error = refusal("dqn_cartpole", [each])
    assert error is not None and words in error.message
    assert error.message.startswith("--set ")


def test_bytes_of_a_command_line_that_are_not_utf_8_are_refused():
    error = refusal("dqn_cartpole", ["policy.name=\udcff"])
    assert error is not None and error.message.endswith(": the text is not UTF-8")


@pytest.mark.parametrize(
    ("name", "sets", "words"),
    [
        ("dqn_cartpole", ["replay.capacity=2147483647"], "at most 2,147,483,599"),
        ("dqn_cartpole", ["train.steps=1e11"], "the run has 12,500,000,000 steps"),
        ("dqn_cartpole", ["network.layers=[1000000000]"], "4 × 1,000,000,000 param"),
        ("dqn_cartpole", ["network.layers=[60000, 60000]"], "60,000 × 60,000 param"),
        ("ppo_cartpole", ["updater.epochs=1e9"], "gradient steps in the run"),
    ],
)
def test_what_32_bits_cannot_count_is_refused_with_its_maximum(name, sets, words):
    error = refusal(name, sets, builds=True)
    assert error is not None and words in f"{error.message} {error.hint}"


def test_the_named_maximum_of_steps_is_accepted():
    error = refusal("sac_pendulum", ["train.steps=2147483648"])
    assert error is not None and "at most 2,147,483,647" in error.hint
    assert refusal("sac_pendulum", ["train.steps=2147483647"]) is None


def test_a_recipe_whose_options_are_all_within_range_is_still_accepted():
    sets = ["optimizer.eps=1e-38", "optimizer.learning_rate=3e38", "optimizer.b1=0"]
    assert refusal("sac_pendulum", ["optimizer.eps=2e-38", *sets[1:]]) is None
    assert refusal("sac_pendulum", sets[:1]) is not None  # XLA makes 0 of it


@pytest.mark.parametrize(
    "each", ["train.seeds=1e9", "network.layers=[60000, 60000]", "updater=os:system"]
)
def test_nonsense_leaves_no_run_behind(each, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "dqn_cartpole", "--set", each, "--run", str(run)]) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["[" * 5_000 + "]" * 5_000, "x" * 1_000_001, DIGITS])
def test_an_environment_named_for_evaluation_is_read_with_the_same_care(text):
    with pytest.raises(RlcliError) as error:
        replace_environment(recipe.load_recipe("dqn_cartpole"), text)
    assert len(error.value.message) < LONGEST


@pytest.mark.parametrize("name", ["x" * 5_000, "x" * 5_000 + ".yaml", "a\0b", "a\nb"])
def test_a_recipe_whose_name_is_no_file_name_is_refused_in_one_line(name):
    assert refusal(name, []) is not None


def options_of(parsed):
    """The dotted names of all options that a recipe has, and of its sections."""
    parts = {"environment": parsed.environment, "policy": parsed.policy}
    parts |= {"tracer": parsed.tracer, "replay": parsed.replay}
    parts |= {"updater": parsed.updater}
    found = [*grammar.SECTIONS, "network.head", "network.memory", "network.head.name"]
    found += [f"environment.{each}" for each in registry.options(grammar.Vector)]
    found += ["network.preprocess", "network.preprocess.0", "environment.each.length"]
    found += [
        f"network.head.{each}"
        for each in registry.options(registry.find("head", "scalar").factory)
    ]
    for section, known in (("train", grammar.Train), ("normalize", grammar.Normalize)):
        found += [f"{section}.{each}" for each in registry.options(known)]
    found += [f"train.{each}.every" for each in ("log", "evaluate", "checkpoint")]
    for section, part in parts.items():
        if part is not None:
            found += [f"{section}.{each.removesuffix('_')}" for each in part.options]
            found.append(f"{section}.name")
    for section, named in (
        ("network", parsed.network),
        ("optimizer", parsed.optimizer),
    ):
        part = named.get("default")
        part = getattr(part, "part", part)
        if part is not None:
            found += [f"{section}.{each.removesuffix('_')}" for each in part.options]
    return [each for each in found if each != "extra"] + ["extra.x"]


def mutations(seed, count):
    """So many random recipes, each a shipped one with one or two options replaced."""
    draw = random.Random(seed)
    names = sorted(recipe.shipped_recipes())
    names = draw.sample(names, 12)
    places = {name: options_of(recipe.load_recipe(name)) for name in names}
    for _ in range(count):
        name = draw.choice(names)
        sets = []
        for _ in range(draw.choice((1, 1, 2))):
            number = draw.choice(NUMBERS)
            value = draw.choice(
                (
                    *(number, f"[{number}]", draw.choice(SCHEDULES) % number),
                    *(f"{{every: {number}, polyak: {number}}}", draw.choice(SHAPES)),
                )
            )
            sets.append(f"{draw.choice(places[name])}={value}")
        yield name, sets


@pytest.mark.slow
def test_every_mutation_of_a_shipped_recipe_is_accepted_or_refused_in_one_line():
    outcomes = [refusal(*each) for each in mutations(seed=0, count=150)]
    refused = sum(each is not None for each in outcomes)
    assert 75 < refused < 150  # some are harmless, and reach the end of the reader


def test_a_mutation_of_python_data_is_accepted_or_refused_in_one_line():
    draw = random.Random(1)
    values = [10**400, -(10**400), 1e300, 5, None, [[]], {"name": 5}, {1: 2}, "x" * 999]
    whole = recipe.resolve(recipe.load_recipe("dqn_cartpole"))
    for _ in range(100):
        data = documents.from_mapping(whole).data
        section = draw.choice([key for key in data if key != "extra"])
        inner = data[section]
        inner[draw.choice(list(inner))] = draw.choice(values)
        refusal(data, [])


@pytest.mark.slow
def test_every_mutation_that_is_read_is_also_built_or_refused_in_one_line():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    # What does not fit raises, instead of taking the machine's memory. The limit
    # counts from here: earlier tests of this process may have reserved as much.
    statm = Path("/proc/self/statm")  # of Linux
    pages = int(statm.read_text().split()[0]) if statm.exists() else 0
    limit = pages * resource.getpagesize() + (12 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        for each in mutations(seed=2, count=300):
            refusal(*each, builds=True)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"network": {"layers": [1] * 5_000}}, ["`layers`", "5,000", "1,000"]),
        (
            {
                "updater": {
                    "name": "ppo",
                    "regularizers": [{"name": "entropy", "weight": 0.1}] * 2_000,
                }
            },
            ["`regularizers`", "2,000", "1,000"],
        ),
        ({"network": {"preprocess": ["flatten"] * 200}}, ["`preprocess`", "200"]),
        (
            {"environment": {"name": "CartPole-v1", "wrappers": ["previous"] * 200}},
            ["`wrappers`", "200", "100"],
        ),
        ({"train": {"trackers": ["tensorboard"] * 200}}, ["`trackers`", "200"]),
    ],
)
def test_a_list_that_would_be_compiled_for_hours_is_refused_at_once(change, words):
    data = {"environment": "CartPole-v1", "updater": "ppo"} | change
    with pytest.raises(RlcliError) as error:
        recipe.load_recipe(data, is_stored=True)
    assert mentions(error.value.message + error.value.hint, *words)
