"""Updaters on probe environments with known values: whole recipes, trained in seconds.

`rlcli.environments.native.probes` documents the values.
"""

import functools
import itertools

import jax
import numpy as np
import pytest

from rlcli import distributions, loop, recipe
from rlcli.assembly import build
from rlcli.networks.functions import separate_network, shared_network
from rlcli.networks.heads import (
    action_values_head,
    distribution_head,
    return_head,
    state_value_head,
)
from rlcli.networks.torsos import linear, mlp

GAMMA = 0.9
slow = pytest.mark.slow

# probe -> observation -> q of the two actions. All of them are linear functions.
VALUES = {
    "constant-reward": {0: (1, 1)},
    "reward-depends-on-observation": {-1: (-1, -1), 1: (1, 1)},
    "two-steps": {0: (GAMMA, GAMMA), 1: (1, 1)},
    "reward-depends-on-action": {0: (-1, 1)},
    "truncation": {0: (1 / (1 - GAMMA), 1 / (1 - GAMMA))},
    "needs-memory": {-1: (1, -1), 1: (-1, 1)},  # with a delay of 0: none
}
REPLAY = {"name": "uniform", "capacity": 512, "batch_size": 64}


def learn_recipe(data, iterations):
    """The setup of a recipe, and its acting parameters after training."""
    setup = build(recipe.load_recipe(data))
    engine = loop.make_loop(setup)
    progress, _ = engine.advance(engine.begin(), iterations)
    agent = setup.agent
    assert int(agent.failed_at(progress.agent)[0]) == -1
    acting = jax.device_get(agent.acting(progress.agent))
    return setup, jax.tree.map(lambda leaf: leaf[0], acting)  # of the only seed


def outputs(setup, params, name, torso, head, obs, make=separate_network):
    """The outputs of a function of the observations `[N]`."""
    environment = setup.environment
    network = make(name, torso, head, environment.observation)
    shown = np.array(obs, "f4")[:, None]
    apply = jax.jit(lambda params: network.apply(params, None, shown, (), None)[0])
    return jax.device_get(apply(params))


def values(setup, params, obs):
    """The values of both actions, by a linear function."""
    return outputs(setup, params, "q", linear(), action_values_head(2), obs)


def environment(probe):
    options = {"delay": 0} if probe == "needs-memory" else {}
    return {"name": f"probe-{probe}", "num_envs": 16, **options}


def td_recipe(probe, updater, n=1, replay=True):
    return {
        "environment": environment(probe),
        "network": "linear",
        "policy": {"name": "epsilon_greedy", "epsilon": 0.5},
        "tracer": {"name": "n_step", "n": n, "gamma": GAMMA},
        "updater": updater,
        "optimizer": {"name": "sgd", "learning_rate": 0.5},
        "train": {"steps": 1_000_000},
        **({"replay": REPLAY} if replay else {}),
    }


TD = {
    "online": ({"name": "q_learning", "loss": "mse"}, 1, False),
    "replay": ({"name": "q_learning", "target": {"every": 2}}, 3, True),
    "double": ({"name": "double_q_learning", "target": {"polyak": 0.5}}, 2, True),
}


@slow
@pytest.mark.parametrize("probe", VALUES)
@pytest.mark.parametrize("kind", TD)
def test_td_updaters_learn_the_values_of(kind, probe):
    setup, params = learn_recipe(td_recipe(probe, *TD[kind]), iterations=800)
    expected = VALUES[probe]
    q = values(setup, params, list(expected))
    np.testing.assert_allclose(q, list(expected.values()), rtol=0.02, atol=0.02)


RULES = {
    **{name: {} for name in ("q_learning", "double_q_learning", "sarsa")},
    **{name: {} for name in ("expected_sarsa", "clipped_double_q_learning")},
    # So small that the entropy bonus is negligible.
    "soft_q_learning": {"temperature": 0.01},
    "soft_clipped_double_q_learning": {"temperature": 0.01},
    "munchausen": {"temperature": 0.01, "alpha": 0.1},
}
HEADS = {
    "scalar": {},
    "categorical": {"atoms": 29, "low": -2.0, "high": 12.0},
    "quantile": {"quantiles": 11},
    "implicit_quantile": {"samples": 8, "target_samples": 8, "policy_samples": 16},
}
TOLD_APART = ("two-steps", "truncation", "reward-depends-on-action")
QUICK = [("munchausen", "quantile", "two-steps")]


@pytest.mark.parametrize(
    ("name", "head", "probe"),
    [
        pytest.param(*each, marks=() if each in QUICK else slow)
        for each in itertools.product(RULES, HEADS, TOLD_APART)
    ],
)
@pytest.mark.slow
def test_every_rule_with_every_head_learns_the_values_of(name, head, probe):
    data = td_recipe(probe, {"name": name, **RULES[name], "target": {"polyak": 0.2}})
    options = {"name": head, **HEADS[head]}
    data["network"] = {"name": "mlp", "layers": [16], "head": options}
    rate = {"from": 0.1, "to": 0.0, "over": 16_000}
    data["optimizer"] = {"name": "adam", "learning_rate": rate}
    setup, params = learn_recipe(data, iterations=1_000)
    copies = 2 if "clipped" in name else None
    makes = functools.partial(separate_network, copies=copies)
    expected = VALUES[probe]
    found = outputs(
        setup,
        params,
        "q",
        mlp(layers=[16]),
        return_head((2,), "act", **options),
        list(expected),
        makes,
    )
    q = np.asarray(jax.jit(lambda: found.particles().mean())())
    q = q.min(0) if copies else q
    expected = np.array(list(expected.values()), float)
    if (name, probe) == ("munchausen", "reward-depends-on-action"):
        expected += [
            [-0.1, 0]
        ]  # α times the log-policy of an action that it never takes
    np.testing.assert_allclose(q, expected, rtol=0.03, atol=0.05)


@pytest.mark.parametrize("head", HEADS)
@slow
def test_state_values_are_learned_with_every_head(head):
    options = {"name": head, **HEADS[head]}
    data = td_recipe("truncation", {"name": "simple_td"})
    data["network"] = {"name": "mlp", "layers": [16], "head": options}
    data["optimizer"] = {"name": "adam", "learning_rate": 0.01}
    data["policy"] = "random"
    setup, params = learn_recipe(data, iterations=3_000)
    made = return_head((), "act", **options)
    found = outputs(setup, params, "value", mlp(layers=[16]), made, [0])
    value = float(found.particles().mean()[0])
    assert value == pytest.approx(1 / (1 - GAMMA), rel=0.03)


@slow
def test_without_memory_a_task_that_needs_it_has_value_zero():
    data = td_recipe("needs-memory", *TD["online"])
    data["environment"]["delay"] = 1
    data["optimizer"]["learning_rate"] = 0.02  # the values are means of ±1
    setup, params = learn_recipe(data, iterations=4_000)
    q = values(setup, params, [-1, 0, 1])
    np.testing.assert_allclose(q, 0, atol=0.15)


def ppo_recipe(probe, **more):
    return {
        "environment": environment(probe),
        "network": "linear",
        "tracer": {"name": "lambda_return", "gamma": GAMMA, "lambda": 0.95},
        "updater": {"name": "ppo", "regularizers": [], **more},
        "optimizer": {"name": "adam", "learning_rate": 0.02, "clip_norm": 0.5},
        "train": {"steps": 1_000_000, "unroll": 16},
    }


# probe -> observation -> value of the best policy, and its action if it matters.
BEST = {
    "constant-reward": {0: (1, None)},
    "reward-depends-on-observation": {-1: (-1, None), 1: (1, None)},
    "two-steps": {0: (GAMMA, None), 1: (1, None)},
    "reward-depends-on-action": {0: (1, 1)},
    "truncation": {0: (1 / (1 - GAMMA), None)},
    "needs-memory": {-1: (1, 0), 1: (1, 1)},
}


@slow
@pytest.mark.parametrize("probe", BEST)
def test_ppo_learns_values_and_actions_of(probe):
    setup, params = learn_recipe(ppo_recipe(probe), iterations=150)
    torso, obs = linear(), list(BEST[probe])
    values, actions = zip(*BEST[probe].values(), strict=True)
    found = outputs(setup, params, "value", torso, state_value_head(), obs)
    np.testing.assert_allclose(found, values, rtol=0.05, atol=0.05)
    family = distributions.categorical(2)
    logits = outputs(setup, params, "policy", torso, distribution_head(family), obs)
    for row, action in zip(logits, actions, strict=True):
        if action is not None:
            assert np.exp(family.log_prob(row, np.array(action))) > 0.95


@slow
def test_ppo_finds_the_maximum_of_a_parabola():
    setup, params = learn_recipe(ppo_recipe("continuous-action"), iterations=150)
    torso, family = linear(), distributions.normal((1,))
    found = outputs(setup, params, "policy", torso, distribution_head(family), [0])
    mean, scale = found[0, 0], np.exp(found[0, 1])
    assert mean == pytest.approx(0.5, abs=0.1)
    assert scale < 0.5  # it began at 1
    value = outputs(setup, params, "value", torso, state_value_head(), [0])[0]
    assert value == pytest.approx(-((mean - 0.5) ** 2) - scale**2, abs=0.1)


@slow
def test_functions_on_a_shared_torso_learn_as_well():
    data = ppo_recipe("needs-memory")
    data["network"] = {"shared": {"name": "mlp", "layers": [16]}, "policy": {}}
    data["network"]["value"] = {}
    setup, params = learn_recipe(data, iterations=150)
    assert set(params) == {"shared", "policy", "value"}
    torso, family = mlp(layers=[16]), distributions.categorical(2)
    value, policy = (
        outputs(setup, params, name, torso, head, [-1, 1], make=shared_network)
        for name, head in [
            ("value", state_value_head()),
            ("policy", distribution_head(family)),
        ]
    )
    np.testing.assert_allclose(value, 1, atol=0.05)
    assert np.all(np.exp(family.log_prob(policy, np.array([0, 1]))) > 0.95)


POLICY_GRADIENTS = {
    "a2c": {"name": "a2c", "regularizers": []},
    "reinforce": {"name": "reinforce", "normalize_advantage": True},
    "cross_entropy": {"name": "cross_entropy", "regularizers": []},
    "v_trace": {"name": "v_trace", "regularizers": []},
    "clipped": {"name": "ppo", "value_clip_ratio": 1.0, "kl_limit": 0.05},
    "pulled": {
        "name": "ppo",
        "regularizers": [{"name": "kl", "weight": 0.1, "to": "old"}],
    },
}


@slow
@pytest.mark.parametrize(
    ("kind", "probe"),
    [("a2c", probe) for probe in BEST]
    + [
        (kind, probe)
        for kind in POLICY_GRADIENTS
        if kind != "a2c"
        for probe in ("truncation", "needs-memory")
    ],
)
def test_policy_gradients_learn_values_and_actions_of(kind, probe):
    data = ppo_recipe(probe)
    data["updater"] = POLICY_GRADIENTS[kind]
    if kind == "v_trace":
        data["tracer"]["name"] = kind
    if probe == "truncation" and kind in ("a2c", "cross_entropy", "v_trace"):
        # With one gradient step per unroll, values must reach 10.
        data["optimizer"]["learning_rate"] = 0.05
    setup, params = learn_recipe(data, iterations=600 if probe == "truncation" else 400)
    obs = list(BEST[probe])
    values, actions = zip(*BEST[probe].values(), strict=True)
    if kind != "reinforce":
        found = outputs(setup, params, "value", linear(), state_value_head(), obs)
        np.testing.assert_allclose(found, values, rtol=0.07, atol=0.07)
    family = distributions.categorical(2)
    logits = outputs(setup, params, "policy", linear(), distribution_head(family), obs)
    for row, action in zip(logits, actions, strict=True):
        if action is not None:
            assert np.exp(family.log_prob(row, np.array(action))) > 0.9


@slow
@pytest.mark.parametrize("probe", VALUES)
def test_parallelised_q_networks_learn_the_values_of(probe):
    data = td_recipe(probe, {"name": "pqn"}, 1, False)
    data["tracer"] = {"name": "lambda_return", "gamma": GAMMA, "lambda": 0.5}
    data["optimizer"] = {"name": "adam", "learning_rate": 0.02}
    data["train"]["unroll"] = 16
    setup, params = learn_recipe(data, iterations=150)
    expected = VALUES[probe]
    q = outputs(setup, params, "q", linear(), action_values_head(2), list(expected))
    np.testing.assert_allclose(q, list(expected.values()), rtol=0.05, atol=0.05)


@slow
def test_soft_values_include_later_entropies():
    # Both actions are equal, so the policy stays uniform: H = log 2 at the second step.
    data = ppo_recipe("two-steps")
    soft = {"name": "n_step_entropy", "weight": 0.5, "gamma": GAMMA, "lambda": 0.95}
    same = {"name": "entropy", "weight": 0.5}
    data["updater"] = {"name": "a2c", "regularizers": [soft, same]}
    setup, params = learn_recipe(data, iterations=400)
    found = outputs(setup, params, "value", linear(), state_value_head(), [0, 1])
    expected = [GAMMA * (1 + 0.5 * np.log(2)), 1]
    np.testing.assert_allclose(found, expected, rtol=0.03)


@slow
@pytest.mark.parametrize(
    ("name", "memory", "head"),
    [
        ("double_q_learning", "lstm", "scalar"),
        ("munchausen", "gru", "quantile"),
        ("sarsa", "gru", "scalar"),
    ],
)
def test_recurrent_networks_learn_from_replayed_sequences(name, memory, head):
    data = td_recipe("needs-memory", {"name": name, "target": {"polyak": 0.05}}, 2)
    data["environment"]["delay"] = 3
    data["policy"] = {"name": "epsilon_greedy", "epsilon": 0.1}
    kept = {"name": memory, "size": 16}
    data["network"] = {"name": "linear", "memory": kept, "head": {"name": head}}
    data["replay"] = {"name": "sequences", "length": 6, "burn_in": 3, "overlap": 3}
    data["replay"] |= {"capacity": 8_000, "priorities": {}}
    data["optimizer"] = {"name": "adam", "learning_rate": 0.01}
    data["train"]["unroll"] = 4
    engine = loop.make_loop(build(recipe.load_recipe(data)))
    progress, _ = engine.advance(engine.begin(), 600)
    assert float(progress.statistics.average_return[0]) > 0.7  # without memory 0


@slow
@pytest.mark.parametrize(
    ("name", "memory"),
    [("ppo", "gru"), ("ppo", "lstm"), ("a2c", "gru"), ("pqn", "gru")],
)
def test_with_memory_a_task_that_needs_it_is_learned(name, memory):
    data = {
        "environment": {"name": "probe-needs-memory", "delay": 2, "num_envs": 16},
        "network": {"name": "linear", "memory": {"name": memory, "size": 16}},
        "tracer": {"name": "lambda_return", "gamma": GAMMA, "lambda": 0.95},
        "updater": {"name": name},
        "optimizer": {"name": "adam", "learning_rate": 0.01},
        "train": {"steps": 1_000_000, "unroll": 12},
    }
    if name == "pqn":
        data["policy"] = {"name": "epsilon_greedy", "epsilon": 0.1}
    setup = build(recipe.load_recipe(data))
    engine = loop.make_loop(setup)
    progress, _ = engine.advance(engine.begin(), 300)
    assert float(progress.statistics.average_return[0]) > 0.8  # without memory 0
