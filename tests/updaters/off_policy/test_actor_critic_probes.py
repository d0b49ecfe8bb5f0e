"""Off-policy actor-critic on probe environments with known values.

The replay is filled by random actions: a deterministic policy takes only one action,
but its critic must learn the values of the others as well.
"""

import functools
import itertools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli import distributions, loop, recipe
from rlcli.assembly import build
from rlcli.networks.functions import Pair, separate_network, statistics_group
from rlcli.networks.heads import action_head, distribution_head, return_head
from rlcli.networks.torsos import mlp

GAMMA = 0.9
OBSERVATION = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
BOX = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
HEADS = {
    "scalar": {},
    "categorical": {"atoms": 29, "low": -2.0, "high": 12.0},
    "quantile": {"quantiles": 11},
    "implicit_quantile": {"samples": 8, "target_samples": 8, "policy_samples": 16},
}
# So small that the entropy bonus is negligible.
UPDATERS = {"ddpg": {}, "td3": {}, "sac": {"temperature": 0.01}}
SOFT_UPDATERS = {
    "tqc": {"temperature": 0.01, "critics": 2, "drop": 1},
    "redq": {"temperature": 0.01, "critics": 3, "subset": 2},
    "crossq": {"temperature": 0.01, "delay": 1},
}
OPTIONS = {**UPDATERS, **SOFT_UPDATERS}
SOFT_CASES = [("tqc", "quantile"), ("redq", "scalar"), ("crossq", "scalar")]
pytestmark = pytest.mark.slow


def learn_probe(probe, name, head):
    """The parameters after a thousand updates, and the functions' head."""
    head = {"name": head, **HEADS[head]}
    torso = {"name": "mlp", "layers": [16], "batch_norm": name == "crossq"}
    target = {} if name == "crossq" else {"target": {"polyak": 0.2}}
    data = {
        "environment": {"name": f"probe-{probe}", "num_envs": 16},
        "network": {
            "policy": torso,
            "critic": {**torso, "head": head},
        },
        "tracer": {"name": "n_step", "gamma": GAMMA},
        "policy": "random",
        "replay": {"name": "uniform", "capacity": 512, "batch_size": 64},
        "updater": {"name": name, **OPTIONS[name], **target},
        "optimizer": {
            "policy": {"name": "adam", "learning_rate": 0.01},
            "critic": {"name": "adam", "learning_rate": {"from": 0.05, "to": 0.0}},
        },
        "train": {"steps": 16_000, "start": 256},
    }
    setup = build(recipe.load_recipe(data))
    engine = loop.make_loop(setup)
    progress, _ = engine.advance(engine.begin(), 1_000)
    learner = progress.agent.learner
    assert int(learner.failed[0]) == -1
    return jax.tree.map(lambda leaf: leaf[0], learner.params), head


def apply_function(params, name, head, space, *inputs, copies=None):
    """The outputs of a function of observations, or of pairs, as scalars."""
    torso = mlp(layers=[16], batch_norm=statistics_group(name) in params)
    network = separate_network(name, torso, head, space, copies)
    shown = [jnp.asarray(each, jnp.float32)[:, None] for each in inputs]
    given = shown[0] if len(shown) == 1 else tuple(shown)
    found, _ = network.apply(params, None, given, (), None)
    return jax.tree.map(np.asarray, found)


def critics(name):
    return 1 if name == "ddpg" else OPTIONS[name].get("critics", 2)


@pytest.mark.parametrize(
    ("name", "head"), [*itertools.product(UPDATERS, HEADS), *SOFT_CASES]
)
def test_the_maximum_of_a_parabola_is_found_with_every_head(name, head):
    params, head = learn_probe("continuous-action", name, head)
    if name in ("ddpg", "td3"):
        policy_head = action_head(1)
    else:
        policy_head = distribution_head(distributions.squashed_normal(BOX))
    found = apply_function(params, "policy", policy_head, OBSERVATION, [0.0])
    # The maximum is flat: an error of 0.15 loses 0.02.
    assert np.tanh(found[0, 0]) == pytest.approx(0.5, abs=0.15)
    tried = np.array([0.2, 0.5, 0.8], "f4")
    copies = critics(name) if critics(name) > 1 else None
    made = return_head((), "act", **head)
    pair = Pair(OBSERVATION, BOX)
    q = apply_function(params, "critic", made, pair, 0 * tried, tried, copies=copies)
    q = np.asarray(q.particles().mean()).reshape(-1, 3)
    expected = np.broadcast_to(-((tried - 0.5) ** 2), q.shape)
    np.testing.assert_allclose(q, expected, atol=0.06)


# probe -> action values of the best policy, and its action.
COUNTED = {
    "reward-depends-on-action": ((-1, 1), 1),
    "truncation": ((1 / (1 - GAMMA), 1 / (1 - GAMMA)), None),
}


@pytest.mark.parametrize(
    ("name", "head", "probe"),
    [("sac", *each) for each in itertools.product(HEADS, COUNTED)]
    + [(name, "scalar", probe) for name in ("ddpg", "td3") for probe in COUNTED]
    + [(*case, probe) for case in SOFT_CASES for probe in COUNTED],
)
def test_discrete_actions_are_valued_and_selected(name, head, probe):
    params, head = learn_probe(probe, name, head)
    family = distributions.categorical(2)
    logits = apply_function(
        params, "policy", distribution_head(family), OBSERVATION, [0.0]
    )
    values, best = COUNTED[probe]
    if best is not None:
        assert np.exp(family.log_prob(logits, np.array([best]))) > 0.95
    copies = critics(name) if critics(name) > 1 else None
    made = functools.partial(return_head, (2,), "act")(**head)
    q = apply_function(params, "critic", made, OBSERVATION, [0.0], copies=copies)
    q = np.asarray(q.particles().mean()).reshape(-1, 2)
    # A stochastic policy has a slightly higher soft value.
    np.testing.assert_allclose(q, np.broadcast_to(values, q.shape), rtol=0.03, atol=0.1)
