"""Plug-ins: a broken one is listed as such, and does not affect the others."""

import json
import sys

import pytest

import rlcli
from rlcli import recipe, registry
from rlcli.assembly import build
from rlcli.cli import main
from rlcli.errors import RlcliError
from rlcli.registry import plugins

MODULES = {
    "breaks": "raise ValueError('no such\\ndevice \\x1b[31m')\n",
    "quits": "import sys\nsys.exit('bye')\n",
    "mine_parts": """
from os import system
import collections
import typing
import annotated_types
import haiku as hk
import jax.numpy as jnp
import numpy
import optax
from rlcli.networks.torsos import Torso, mlp

CALLS = []

def fine(*, width: int = 8):
    \"\"\"A torso of one layer.\"\"\"
    CALLS.append(width)
    return mlp(layers=[width])

class Factory:
    def __call__(self, *, rate: float = 0.1):
        return optax.sgd(rate)

instance = Factory()
unreadable = iter
multi = lambda *, every: 1

def steps(*, rate: float = 0.1):
    return optax.MultiSteps(optax.sgd(rate), 2)

def no_record():
    CALLS.append('called')
    return 'text'

def bad_annotation(*, n: 'Missing' = 1):
    return None

class Lazy(typing.TypedDict):
    width: "Missing"

def nested(*, lazy: Lazy | None = None):
    CALLS.append('called')

record = collections.namedtuple('record', ['width'])

def untyped(*, sizes=record(8)):
    CALLS.append('called')

def objects(*, weights: numpy.ndarray = numpy.zeros(2), call: typing.Any = print):
    return mlp(layers=[weights.size])

def ignored(*, width: typing.Annotated[int, annotated_types.MultipleOf(8)] = 8):
    CALLS.append('called')

def raises(*, n: int = 1):
    return {}['key']

def forward(obs):
    return obs['nothing'] if obs.ndim > 5 else obs.missing

def text(obs):
    return 'text'

def half(obs):
    return obs @ hk.get_parameter('w', (4, 2), jnp.bfloat16, jnp.zeros)

def counts(obs):
    return obs @ hk.get_parameter('w', (4, 2), jnp.int32, jnp.zeros)

def broken_head(actions, role):
    return {}['key']

def no_head(actions, role):
    return 'text'

def three(parts, nets, tracer):
    CALLS.append('called')

def swallows(*parts, **options):
    CALLS.append('called')
""",
}
ENTRIES = """
[rlcli.v1.updaters]
broken = breaks:updater
gone = breaks_not_there:updater
quits = quits:updater
number = mine_parts:CALLS
builtin = builtins:iter
short = mine_parts:three
[rlcli.v1.environments]
Broken-v0 = breaks:environment
raises-v0 = mine_parts:raises
lend/ = breaks:lend
[rlcli.v1.policies]
broken_policy = breaks:policy
[rlcli.v1.networks]
fine = mine_parts:fine
"""


@pytest.fixture(autouse=True)
def site(tmp_path, monkeypatch):
    """An installed distribution in a folder on `sys.path`; its modules and entries."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    folder = tmp_path / "shaky-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: shaky\nVersion: 1.2\n"
    )
    (folder / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)
    registry.entry_points.cache_clear()
    yield tmp_path
    registry.entry_points.cache_clear()
    for name in MODULES:
        sys.modules.pop(name, None)


def test_a_broken_plug_in_is_listed_with_its_error_and_the_others_normally(site):
    listed = {
        each["name"]: each["summary"] for each in rlcli.list("updater")["updaters"]
    }
    assert listed["broken"] == (
        "broken: updater `broken` of plug-in `shaky 1.2` (module `breaks`) cannot be "
        f"loaded: ValueError: no such device \\x1b[31m ({site / 'breaks.py'}:1)"
    )
    assert "No module named 'breaks_not_there'" in listed["gone"]
    assert "SystemExit: bye" in listed["quits"]
    assert "it cannot be called" in listed["number"]
    assert "its signature cannot be read" in listed["builtin"]
    assert "positional parameter `nets`" in listed["short"]
    assert listed["ppo"].startswith("Proximal policy optimization")


def test_rlcli_list_and_show_survive_a_broken_plug_in(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "no such device \\x1b[31m" in out
    assert "Broken-v0" in out and "CartPole-v1" in out
    assert main(["list", "environments"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[1:] for line in table if "Broken-v0" in line] == [["?"] * 4]
    assert [line for line in table if "raises-v0" in line]  # though it cannot be made
    assert main(["list", "updaters", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["updaters"]
    assert main(["show", "updater", "ppo"]) == 0
    assert main(["show", "environment", "raises-v0"]) == 0


@pytest.mark.parametrize(
    "data",
    [
        {"environment": "CartPole-v1", "updater": "broken"},
        {"environment": "Broken-v0", "updater": "ppo"},
        {"environment": "lend/Some-v0", "updater": "ppo"},
    ],
)
def test_a_recipe_with_a_broken_plug_in_names_distribution_module_and_exception(data):
    with pytest.raises(RlcliError) as error:
        recipe.load_recipe(data)
    for part in ("`shaky 1.2`", "module `breaks`", "ValueError: no such device"):
        assert part in error.value.message
    assert len(error.value.message.splitlines()) == 1


def test_a_recipe_without_a_broken_plug_in_is_built():
    parsed = recipe.load_recipe("dqn_cartpole", ["network={name: fine}"])
    assert build(parsed).steps_per_iteration == 8
    with pytest.raises(RlcliError, match="policy `sampled` requires"):
        build(recipe.load_recipe("dqn_cartpole", ["policy=sampled"]))


@pytest.mark.parametrize(
    ("each", "words"),
    [
        ("optimizer=mine_parts:three", "the parts that an optimizer gets are none"),
        ("updater=mine_parts:three", "`parts`, `tracer`, `simulator`"),
        ("replay=mine_parts:system", "positional parameter `command`"),
        ("network=mine_parts:bad_annotation", "NameError: name 'Missing'"),
        ("tracer=mine_parts:unreadable", "its signature cannot be read"),
        ("network=mine_parts:nested", "of `lazy`: NameError: name 'Missing'"),
        ("tracer=mine_parts:untyped", "the annotations of its options cannot be read"),
        ("tracer=mine_parts:ignored", "`MultipleOf(multiple_of=8)` is no limit of"),
        ("network.head=mine_parts:three", "a head gets are `actions`, `role`"),
        ("updater=breaks:x", "module `breaks` cannot be imported: ValueError"),
        ("updater=quits:x", "SystemExit: bye"),
    ],
)
def test_an_object_that_cannot_be_a_factory_is_refused_and_not_called(each, words):
    with pytest.raises(RlcliError) as error:
        recipe.load_recipe("dqn_cartpole", [each])
    assert words in error.value.message
    calls = getattr(sys.modules.get("mine_parts"), "CALLS", [])
    assert calls == []


@pytest.mark.parametrize(
    ("each", "words"),
    [
        ("tracer=mine_parts:no_record", "returned `str`, which has no `window`"),
        ("network=mine_parts:no_record", "returned `str`, which has no `features`"),
        ("optimizer=mine_parts:no_record", "`optax"),
        ("updater=mine_parts:swallows", "returned `NoneType`"),
        ("tracer=mine_parts:raises", "KeyError: 'key' ("),
        ("network=mine_parts:forward", "AttributeError"),
        ("network=mine_parts:text", "expected an array, got `str`"),
        ("network=mine_parts:half", "parameters of bfloat16, expected float32"),
        ("network=mine_parts:counts", "parameters of int32, expected float32"),
        ("network.head=mine_parts:broken_head", "KeyError: 'key' ("),
        ("network.head=mine_parts:no_head", "has no attribute '_replace'"),
    ],
)
def test_a_factory_that_returns_no_part_is_an_error_that_names_it(each, words):
    from rlcli.training.experiment.program import Program

    with pytest.raises(RlcliError) as error:
        parsed = recipe.load_recipe("dqn_cartpole", [each])
        Program(parsed, build(parsed)).check()
    assert words in f"{error.value.message} {error.value.hint}"
    assert error.value.message.startswith(f"--set {each}: ")


@pytest.mark.parametrize(
    "each", ["network=mine_parts:fine", "optimizer=mine_parts:instance"]
)
def test_a_callable_of_a_user_module_works(each):
    assert build(recipe.load_recipe("dqn_cartpole", [each])).steps_per_iteration == 8


def test_the_defaults_of_a_part_may_be_objects_that_no_recipe_can_write(site):
    assert build(recipe.load_recipe("dqn_cartpole", ["network=mine_parts:objects"]))
    text = rlcli.show("network", "mine_parts:objects")
    assert "weights: numpy.ndarray = a ndarray" in text
    assert "call: any = a builtin_function_or_method" in text


def test_a_part_may_be_any_object_with_the_fields_of_its_type():
    parsed = recipe.load_recipe("dqn_cartpole", ["optimizer=mine_parts:steps"])
    assert build(parsed).steps_per_iteration == 8


def test_a_user_module_may_have_the_name_of_a_standard_module(site, monkeypatch):
    (site / "this.py").write_text("def linear():\n    return 1\n")
    monkeypatch.delitem(sys.modules, "this", raising=False)
    assert plugins.import_factory("network", "this:linear")() == 1
    sys.modules.pop("this", None)
    for module in ("os", "builtins", "sys", "subprocess", "email.mime"):
        with pytest.raises(RlcliError, match="is part of Python"):
            plugins.import_factory("network", f"{module}:x")
