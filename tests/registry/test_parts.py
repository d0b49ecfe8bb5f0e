"""The registry: names of built-in and external parts, and options of factories."""

import subprocess
import sys
from typing import Annotated

import pytest
from annotated_types import Ge

from rlcli import registry
from rlcli.errors import RlcliError


@pytest.fixture
def plug_in(tmp_path, monkeypatch):
    """An installed distribution that offers a network and a second `mlp`."""
    (tmp_path / "elsewhere.py").write_text(
        "def tower(*, floors: int = 3): return floors\n"
        "class Box:\n    @staticmethod\n    def lid(): return 1\n"
        "number = 7\n"
    )
    folder = tmp_path / "elsewhere-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\n")
    (folder / "entry_points.txt").write_text(
        "[rlcli.v1.networks]\n"
        "tower = elsewhere:tower\n"
        "mlp = elsewhere:tower\n"
        "[rlcli.v2.networks]\n"
        "later = elsewhere:tower\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry.entry_points.cache_clear()
    yield
    registry.entry_points.cache_clear()
    sys.modules.pop("elsewhere", None)


def test_each_kind_has_the_parts_of_its_package():
    assert {"mlp", "linear", "table"} <= set(registry.names("network"))
    assert {"epsilon_greedy", "sampled", "random"} <= set(registry.names("policy"))
    assert {"n_step", "lambda_return"} <= set(registry.names("tracer"))
    assert "uniform" in registry.names("replay")
    assert {"q_learning", "double_q_learning", "ppo"} <= set(registry.names("updater"))
    assert "adam" in registry.names("optimizer")
    environments = registry.names("environment")
    assert {"CartPole-v1", "FrozenLakeNonSlippery-v0", "gymnasium/"} <= set(
        environments
    )


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_part_has_a_docstring_and_options_that_are_annotated(kind):
    for name in registry.names(kind):
        part = registry.find(kind, name)
        assert (part.kind, part.name, part.is_trusted) == (kind, name, True)
        assert part.factory.__doc__, name
        for option in registry.options(part.factory).values():
            assert option.annotation is not option.empty, f"{name}: {option}"
            assert not isinstance(option.annotation, str)  # it was evaluated


def test_a_kind_is_found_in_singular_and_plural():
    assert registry.parse_kind("policy") == registry.parse_kind("policies") == "policy"
    assert registry.parse_kind("replays") == "replay"
    with pytest.raises(RlcliError, match="no kind of part `polcy`") as caught:
        registry.parse_kind("polcy")
    assert caught.value.hint == "did you mean `policy`?"


def test_an_unknown_name_is_an_error_that_suggests_the_nearest():
    with pytest.raises(RlcliError, match="there is no updater `q_lerning`") as caught:
        registry.find("updater", "q_lerning")
    assert caught.value.hint == "did you mean `q_learning`?"


def test_an_adapter_takes_the_id_first():
    part = registry.find("environment", "gymnasium/Acrobot-v1")
    assert part.name == "gymnasium/Acrobot-v1"
    assert part.factory.args == ("Acrobot-v1",)
    assert part.facts == registry.find("environment", "gymnasium/CartPole-v1").facts
    with pytest.raises(RlcliError, match="there is no environment `gymnasum/X-v0`"):
        registry.find("environment", "gymnasum/X-v0")


def test_options_are_the_keyword_only_parameters_by_their_name_in_yaml():
    def factory(
        space, values=None, *, lambda_: "Annotated[float, Ge(0.0)]" = 0.9, n: "int" = 1
    ):
        """A factory."""

    options = registry.options(factory)
    assert list(options) == ["lambda", "n"]
    assert options["lambda"].name == "lambda_"
    assert options["lambda"].annotation == Annotated[float, Ge(0.0)]
    assert options["n"].annotation is int
    assert options["n"].default == 1


@pytest.mark.usefixtures("own_parts")
def test_a_factory_is_registered_by_its_own_name_or_another():
    @registry.register("tracer", patience=3)
    def far_sighted():
        """Looks far."""

    registry.register("tracer", "near")(far_sighted)
    assert registry.find("tracer", "far_sighted").factory is far_sighted
    assert registry.find("tracer", "far_sighted").facts["patience"] == 3
    assert registry.find("tracer", "near").factory is far_sighted
    assert {"far_sighted", "near"} <= set(registry.names("tracer"))


def test_a_name_is_registered_once():
    def mlp():
        """Another."""

    registry.names("network")  # loads the built-in ones
    with pytest.raises(ValueError, match="'mlp' is registered already, by rlcli"):
        registry.register("network")(mlp)
    with pytest.raises(ValueError, match="expected a kind among"):
        registry.register("netwrok")


@pytest.mark.usefixtures("plug_in")
def test_an_installed_plug_in_is_found_by_name_and_trusted():
    part = registry.find("network", "tower")
    assert part.factory() == 3
    assert part.is_trusted
    assert list(registry.options(part.factory)) == ["floors"]
    assert registry.names("network").count("tower") == 1
    assert registry.names("network")[-1] == "tower"  # after the built-in ones


@pytest.mark.usefixtures("plug_in")
def test_a_built_in_name_wins_over_a_plug_in_and_another_contract_is_not_read():
    assert registry.find("network", "mlp").factory.__module__.startswith("rlcli.")
    assert registry.names("network").count("mlp") == 1
    with pytest.raises(RlcliError, match="there is no network `later`"):
        registry.find("network", "later")
    with pytest.raises(RlcliError, match="there is no updater `tower`"):
        registry.find("updater", "tower")


@pytest.mark.usefixtures("plug_in")
def test_a_part_with_an_import_path_is_not_trusted():
    part = registry.find("network", "elsewhere:tower")
    assert part.factory(floors=5) == 5
    assert (part.name, part.is_trusted) == ("elsewhere:tower", False)
    assert registry.find("network", "elsewhere:Box.lid").factory() == 1


@pytest.mark.usefixtures("plug_in", "own_parts")
def test_a_part_that_registers_itself_has_its_facts_by_any_name():
    factory = registry.find("network", "tower").factory
    assert registry.find("network", "elsewhere:tower").facts == {}
    registry.register("network", "high", storeys=3)(factory)
    for name in ("tower", "elsewhere:tower", "high"):
        assert registry.find("network", name).facts == {"storeys": 3}
    assert not registry.find("network", "elsewhere:tower").is_trusted


@pytest.mark.usefixtures("plug_in")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere_at_all:tower", "module `nowhere_at_all` cannot be imported"),
        ("elsewhere:towr", "has no attribute 'towr'"),
        ("elsewhere:number", "is not a factory: it cannot be called"),
    ],
)
def test_an_invalid_import_path_is_an_error_that_names_it(name, message):
    with pytest.raises(RlcliError, match=message) as caught:
        registry.find("network", name)
    assert f"`{name}`" in caught.value.message


@pytest.mark.usefixtures("plug_in")
@pytest.mark.parametrize("name", [":tower", "elsewhere:", ":", "..:x", "else where:x"])
def test_a_malformed_import_path_is_an_error_with_the_expected_form(name):
    with pytest.raises(RlcliError) as caught:
        registry.find("network", name)
    assert caught.value.message == f"network `{name}` is not an import path"
    assert "`module:attribute`" in caught.value.hint


def test_parsing_a_kind_does_not_import_jax():
    code = (
        "import sys, rlcli.registry as registry\n"
        "assert 'jax' not in sys.modules, 'jax'\n"
        "assert registry.parse_kind('tracers') == 'tracer'\n"
        "assert 'jax' not in sys.modules, 'jax'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("gymnax_name", "suggestion"),
    [
        ("Asterix-MinAtar", "MinAtar/Asterix-v1"),
        ("Breakout-MinAtar", "MinAtar/Breakout-v1"),
        ("Freeway-MinAtar", "MinAtar/Freeway-v1"),
        ("Seaquest-MinAtar", "MinAtar/Seaquest-v1"),
        ("SpaceInvaders-MinAtar", "MinAtar/SpaceInvaders-v1"),
        ("Catch-bsuite", "bsuite/Catch"),
        ("DeepSea-bsuite", "bsuite/DeepSea"),
        ("DiscountingChain-bsuite", "bsuite/DiscountingChain"),
        ("MNISTBandit-bsuite", "bsuite/MNISTBandit"),
        ("MemoryChain-bsuite", "bsuite/MemoryChain"),
        ("SimpleBandit-bsuite", "bsuite/SimpleBandit"),
        ("UmbrellaChain-bsuite", "bsuite/UmbrellaChain"),
        ("BernoulliBandit-misc", "BernoulliBandit-v0"),
        ("FourRooms-misc", "FourRooms-v0"),
        ("FrozenLake-misc", "FrozenLake-v1"),
        ("Pong-misc", "Pong-v0"),
    ],
)
def test_a_gymnax_environment_name_suggests_the_rlcli_name(gymnax_name, suggestion):
    with pytest.raises(RlcliError) as error:
        registry.find("environment", gymnax_name)
    assert error.value.hint == f"did you mean `{suggestion}`?"
