"""The outputs of a user's compiled environment are checked against its spaces."""

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import rlcli
from rlcli.assembly import check_environment
from rlcli.errors import RlcliError
from rlcli.recipe import load_recipe
from rlcli.types import Core, TimeStep

BOX = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
VALID = TimeStep(
    obs=jnp.zeros(2),
    next_obs=jnp.zeros(2),
    reward=jnp.float32(0),
    discount=jnp.float32(1),
    last=jnp.bool_(False),
    info={"speed": jnp.float32(0)},
)
TIMESTEPS = {
    "long": VALID._replace(obs=jnp.zeros(3)),
    "whole": VALID._replace(next_obs=jnp.zeros(2, jnp.int32)),
    "member": VALID._replace(obs={"at": jnp.zeros(2)}),
    "two_rewards": VALID._replace(reward=jnp.zeros(2)),
    "whole_reward": VALID._replace(reward=jnp.int32(1)),
    "number": VALID._replace(last=jnp.float32(0)),
    "list": VALID._replace(info={"speed": jnp.zeros(3)}),
    "step_number": VALID._replace(info={"T": jnp.float32(0)}),
    "tuple": tuple(VALID),
}


def core(*, kind: str = "valid") -> Core:
    """An environment; `kind` selects what is wrong with its outputs, if anything."""
    first = jnp.zeros(1 if kind == "short" else 2)
    after = jnp.float32(0) if kind == "forgets" else jnp.int32(0)
    timestep = TIMESTEPS.get(kind, VALID)
    return Core(
        lambda key: (jnp.int32(0), first),
        lambda state, action, noise: (after, timestep),
        BOX,
        gymnasium.spaces.Discrete(2),
        None,
        draw=lambda key: (),
    )


def data(kind: str) -> dict:
    environment = {"name": f"{__name__}:core", "kind": kind}
    return {"environment": environment, "updater": "ppo"}


def test_an_environment_that_returns_what_it_declares_is_taken():
    check_environment(load_recipe(data("valid")))


SPACE = r"but its space Box\(2,\) in \[-1, 1\] declares float32\[2\]"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("short", rf"`reset` returns an observation that is float32\[1\], {SPACE}"),
        ("long", rf"`step` returns a `obs` that is float32\[3\], {SPACE}"),
        ("whole", rf"`step` returns a `next_obs` that is int32\[2\], {SPACE}"),
        ("member", rf"`step` returns a `obs` that is missing, {SPACE}"),
        ("two_rewards", r"`reward` that is float32\[2\], but a TimeStep has float32"),
        ("whole_reward", r"`reward` that is int32\[\], but a TimeStep has float32\["),
        ("number", r"`last` that is float32\[\], but a TimeStep has bool\[\]"),
        ("list", r"an `info` whose `speed` is float32\[3\], not a number"),
        ("step_number", r"an `info` with `T`, which rows of metrics use for another"),
        ("tuple", r"`step` returns tuple, expected \(state, TimeStep\)"),
        ("forgets", r"a state that is float32\[\], but `reset` returns int32\[\]"),
    ],
)
def test_an_environment_that_returns_something_else_is_refused_by_name(kind, message):
    with pytest.raises(RlcliError, match=message) as caught:
        check_environment(load_recipe(data(kind)))
    assert f"environment `{__name__}:core`: `" in caught.value.message


@pytest.mark.parametrize("verb", ["check", "train"])
def test_it_is_refused_before_anything_is_run(verb, tmp_path):
    with pytest.raises(RlcliError, match="`reset` returns an observation"):
        if verb == "check":
            rlcli.check([data("short")])
        else:
            rlcli.train(data("short"), run=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
