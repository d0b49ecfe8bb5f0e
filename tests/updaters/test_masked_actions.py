"""A space with k legal actions gives the numbers of a space of k actions.

Each updater learns from the same rows twice: with a mask that allows three of five
actions, and in a space that has only those three, with the same parameters.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces as kinds

from rlcli import registry
from rlcli.assembly.preprocessing import prepare_torso
from rlcli.distributions import action_masks, categorical
from rlcli.errors import RlcliError
from rlcli.networks import heads
from rlcli.networks.functions import separate_network
from rlcli.networks.masking import mask_network
from rlcli.networks.predictions import Scalar
from rlcli.networks.torsos import linear
from rlcli.policies import ValuesOffer
from rlcli.policies.discrete import boltzmann, epsilon_greedy
from rlcli.policies.sampled import random
from rlcli.recipe import load_recipe
from rlcli.types import Clock, Transition
from rlcli.updaters import Parts, Spaces
from rlcli.updaters.model_based import muzero
from rlcli.updaters.off_policy.soft_pg import build_temperature
from rlcli.updaters.regularizers import fill_defaults, penalties

CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))
KEY = jax.random.key(0)
ACTIONS, LEGAL, ENTRIES, SHAPE = 5, np.array([1, 3, 4]), 3, (4, 6)
PLACE = kinds.Box(-np.inf, np.inf, (ENTRIES,), np.float32)
MASK = np.isin(np.arange(ACTIONS), LEGAL)
# Of all actions, and of the legal ones alone.
MASKED = Spaces(
    kinds.Dict({action_masks.MASK: kinds.MultiBinary(ACTIONS), "place": PLACE}),
    kinds.Discrete(ACTIONS),
)
REDUCED = Spaces(kinds.Dict({"place": PLACE}), kinds.Discrete(len(LEGAL)))
ENTROPIES = np.log([5, 3, 2, 1])  # of uniform policies over legal actions
KL = [{"name": "entropy", "weight": 0.3}, {"name": "kl", "weight": 0.7}]
DUELING = {"dueling": True}
CATEGORICAL = {"name": "categorical", "atoms": 7, "low": -3.0, "high": 3.0}
QUICK = {"hot_munchausen", "cql", "ppo", "sac"}
UPDATERS = {  # id: (updater, policy, its options, the updater's, the head of critics)
    "q_learning": ("q_learning", "epsilon_greedy", {}, {}, {}),
    "double": ("double_q_learning", "epsilon_greedy", {}, {}, {}),
    "dueling": ("dueling_dqn", "epsilon_greedy", {}, {}, DUELING),
    "dueling_c51": ("c51", "boltzmann", {}, {}, CATEGORICAL | DUELING),
    "qr_dqn": ("qr_dqn", "boltzmann", {}, {}, {"name": "quantile", "quantiles": 4}),
    "expected_sarsa": ("expected_sarsa", "epsilon_greedy", {"epsilon": 0.4}, {}, {}),
    "expected_boltzmann": ("expected_sarsa", "boltzmann", {}, {}, {}),
    "expected_random": ("expected_sarsa", "random", {}, {}, {}),
    "soft": ("soft_q_learning", "boltzmann", {}, {}, {}),
    "hot": ("soft_q_learning", "boltzmann", {}, {"temperature": 1e9}, {}),
    "munchausen": ("munchausen", "boltzmann", {}, {"temperature": 0.5}, {}),
    "hot_munchausen": ("munchausen", "boltzmann", {}, {"temperature": 1e9}, {}),
    "simple_td": ("simple_td", "random", {}, {}, {}),
    "pqn": ("pqn", "epsilon_greedy", {}, {"epochs": 1, "minibatches": 1}, {}),
    "cql": ("cql", "sampled", {}, {}, {}),
    "iql": ("iql", "sampled", {}, {}, {}),
    "awac": ("awac", "sampled", {}, {}, {}),
    "behaviour_cloning": ("behaviour_cloning", "sampled", {}, {}, {}),
    "a2c": ("a2c", "sampled", {}, {"regularizers": KL}, {}),
    "ppo": ("ppo", "sampled", {}, {"regularizers": KL, "epochs": 1}, {}),
    "cross_entropy": ("cross_entropy", "sampled", {}, {}, {}),
    "ddpg": ("ddpg", "sampled", {}, {"regularizers": KL}, {}),
    "sac": ("sac", "sampled", {}, {"initial_temperature": 0.5}, {}),
    "sac_kl": ("sac", "sampled", {}, {"regularizers": KL, "temperature": 0.2}, {}),
    "dsac": ("sac", "sampled", {}, {"loss": "huber"}, {"name": "quantile"}),
}


def make_updater(name, space):
    """The updater on linear functions, and its state."""
    updater, policy, policy_options, options, head_options = UPDATERS[name]
    torso = prepare_torso(linear(), [])

    def networks(function, head, *, observation=None, action=None, copies=None):
        assert observation is None and action is None
        takes_head = function in ("q", "critic")
        head = head(**(head_options if takes_head else {}))
        network = separate_network(function, torso, head, space.observation, copies)
        return mask_network(network, head, space.observation)

    def policies(**offers):
        factory = registry.find("policy", policy).factory
        offers |= {"observation": space.observation}
        return registry.call_factory(factory, offers, policy_options)

    factory = registry.find("updater", updater).factory
    offers = {"parts": Parts(space, networks, policies, optax.sgd(0.1))}
    return registry.call_factory(factory, offers, options)


def legal_part(leaf):
    """The parameters of the legal actions: outputs are the last axis, `n · K`."""
    if leaf.ndim == 0 or leaf.shape[-1] % ACTIONS:
        return leaf
    rows = leaf.reshape((*leaf.shape[:-1], ACTIONS, -1))
    return rows[..., LEGAL, :].reshape((*leaf.shape[:-1], -1))


def make_rows(is_masked):
    rng = np.random.default_rng(1)
    obs, next_obs = rng.normal(size=(2, *SHAPE, ENTRIES)).astype("f4")
    choice = rng.integers(0, len(LEGAL), SHAPE)
    mask = np.broadcast_to(MASK, (*SHAPE, ACTIONS)).astype(np.int8)

    def observe(place):
        return {"place": place} | ({action_masks.MASK: mask} if is_masked else {})

    reward = rng.normal(size=SHAPE).astype("f4")
    return Transition(
        obs=observe(obs),
        action=LEGAL[choice] if is_masked else choice,
        reward=reward,
        discount=rng.choice([0.0, 0.9], SHAPE).astype("f4"),
        next_obs=observe(next_obs),
        first=np.zeros(SHAPE, bool),
        last=rng.random(SHAPE) < 0.3,
        extras={
            "log_prob": np.log(rng.uniform(0.2, 0.9, SHAPE)).astype("f4"),
            "reward": reward,
            "next_carry": (),
        },
    )


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in UPDATERS
    ],
)
def test_an_updater_learns_what_it_would_without_the_illegal_actions(name):
    masked, reduced = (make_updater(name, space) for space in (MASKED, REDUCED))
    rng = np.random.default_rng(0)

    def randomize(state):
        return jax.tree.map(
            lambda leaf: (
                rng.normal(size=leaf.shape).astype("f4")
                if jnp.issubdtype(leaf.dtype, jnp.floating)
                else leaf
            ),
            state,
        )

    state = jax.eval_shape(masked.init, KEY)
    params = randomize(jax.tree.map(lambda leaf: np.zeros(leaf.shape), state.params))
    assert any(leaf.shape[-1:] == (ACTIONS,) for leaf in jax.tree.leaves(params)) or (
        name in ("dueling_c51", "qr_dqn", "dsac", "simple_td")
    )
    results = []
    for updater, change, is_masked in (
        (masked, lambda leaf: leaf, True),
        (reduced, legal_part, False),
    ):
        old = jax.tree.map(change, params)
        state = jax.jit(updater.init)(KEY)
        target = {group: old[group] for group in state.target or ()}
        state = state._replace(params=old, target=target or state.target)
        rows, weight = make_rows(is_masked), np.ones(SHAPE, "f4")
        after, report = jax.jit(updater.update)(state, rows, weight, CLOCK, KEY)
        assert after.failed == -1
        estimates = jax.jit(updater.estimate)(state, rows, KEY)
        results.append((after.params, report, estimates[:4]))
    (learned, report, estimates), expected = results
    close = functools.partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-5)
    jax.tree.map(close, jax.tree.map(legal_part, learned), expected[0])
    jax.tree.map(close, report.metrics, expected[1].metrics)
    close(report.priority, expected[1].priority)
    jax.tree.map(close, estimates, expected[2])


@pytest.mark.parametrize("factory", [epsilon_greedy, boltzmann, random])
def test_the_probability_of_an_action_is_that_among_the_legal_ones(factory):
    """Also of an illegal action: 0, in sums over all actions."""
    rng = np.random.default_rng(0)
    q = rng.normal(size=(6, ACTIONS)).astype("f4")
    masked = np.where(MASK, q, action_masks.FORBIDDEN_VALUE).astype("f4")
    found = []
    for values, space, seen in (
        (masked, MASKED, MASKED.observation),
        (q[:, LEGAL], REDUCED, REDUCED.observation),
    ):
        if factory is random:
            policy = random(space.action, seen)
        else:
            policy = factory(ValuesOffer(None), space.action)
        numbers = np.arange(int(space.action.n))
        probabilities = [
            np.exp(policy.log_prob(values, np.full(6, number))) for number in numbers
        ]
        found.append(np.stack(probabilities, axis=-1))
    np.testing.assert_allclose(found[0][:, LEGAL], found[1], rtol=1e-5)
    np.testing.assert_array_equal(found[0][:, ~MASK], 0)


@pytest.mark.parametrize("temperature", [1.0, 1e12])
def test_no_temperature_makes_an_illegal_action_likely(temperature):
    masked = np.where(MASK, 0.5, action_masks.FORBIDDEN_VALUE).astype("f4")[None]
    policy = boltzmann(ValuesOffer(None), MASKED.action, temperature=temperature)
    probability = np.exp(policy.log_prob(np.tile(masked, (5, 1)), np.arange(5)))
    np.testing.assert_allclose(probability, MASK / 3, rtol=1e-6)


@pytest.mark.parametrize("best", [5.0, -5.0, -3e7])
@pytest.mark.parametrize("temperature", [1e-30, 1e-20, 1e-9, 0.03, 1e12])
def test_a_soft_policy_has_no_illegal_action_at_any_temperature(best, temperature):
    values = np.array([-4e7, best, best, action_masks.FORBIDDEN_VALUE], "f4")
    divided = jax.jit(action_masks.divide)(values, temperature)
    probability = jax.nn.softmax(divided)
    expected = np.exp((values[:3].astype(float) - best) / temperature)
    expected = np.append(expected / expected.sum(), 0)
    np.testing.assert_allclose(probability, expected, rtol=1e-4, atol=1e-6)
    entropy = -np.sum(probability * jax.nn.log_softmax(divided))
    assert np.isfinite(entropy)


def test_the_kl_divergence_to_the_prior_is_that_to_the_uniform_legal_policy():
    """KL(π ‖ uniform) = log k − H(π), with k = 3."""
    logits = np.random.default_rng(0).normal(size=(4, 2, ACTIONS)).astype("f4")
    masked = np.where(MASK, logits, action_masks.FORBIDDEN_VALUE)
    terms = fill_defaults([{"name": "kl", "weight": 1.0}])
    (term,) = penalties(terms, categorical(ACTIONS), masked, None)
    p = np.exp(logits[..., LEGAL])
    p /= p.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(term.value, np.log(3) + (p * np.log(p)).sum(-1), 1e-4)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (None, 0.98 * np.log([5, 3, 2, 1])),
        (0.5, 0.5 * np.log([5, 3, 2, 1]) / np.log(5)),
    ],
)
def test_the_target_entropy_of_a_state_counts_its_legal_actions(target, expected):
    temperature = build_temperature(MASKED.action, "learned", 1.0, target)
    legal = np.arange(ACTIONS) < np.array([[5], [3], [2], [1]])
    outputs = np.where(legal, 0.3, action_masks.FORBIDDEN_VALUE)
    found = temperature.target_entropy(outputs[None])
    np.testing.assert_allclose(found, [expected], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("updater", ["sac", "cql"])
def test_a_learned_temperature_begins_above_zero(updater):
    """Its logarithm is learned."""
    for initial in (0.0, -1.0):
        recipe = {
            "environment": "Pendulum-v1",
            "updater": {"name": updater, "initial_temperature": initial},
        }
        with pytest.raises(RlcliError, match="float > 0"):
            load_recipe(recipe)


def test_a_target_entropy_that_no_policy_has_is_refused():
    with pytest.raises(RlcliError, match=r"more than log 5 = 1\.61 nats"):
        build_temperature(MASKED.action, "learned", 1.0, 1.7)


@pytest.mark.parametrize("size", [1, 7])
def test_the_mean_advantage_of_a_dueling_head_is_that_of_the_legal_actions(size):
    """q = v + A − mean of A over the legal actions, of known v and A."""
    rng = np.random.default_rng(0)
    v, advantage = rng.normal(size=(6, 1, size)), rng.normal(size=(6, ACTIONS, size))
    options = {"dueling": True} | ({} if size == 1 else CATEGORICAL)
    head = heads.return_head((ACTIONS,), "act", **options)
    network = separate_network(
        "q", prepare_torso(linear(), []), head, MASKED.observation
    )
    mask = np.broadcast_to(MASK, (1, 6, ACTIONS)).astype("i1")
    obs = {action_masks.MASK: mask, "place": np.zeros((1, 6, ENTRIES), "f4")}
    # The parameters are biases only, so that the outputs are known.
    for at in range(6):
        params = jax.tree.map(
            lambda leaf: np.zeros(leaf.shape, "f4"), jax.eval_shape(network.init, KEY)
        )
        for layer in params["q"].values():
            if "b" in layer:
                known = v[at] if layer["b"].size == size else advantage[at]
                layer["b"] = known.ravel().astype("f4")
        masked = mask_network(network, head, MASKED.observation)
        outputs = masked.apply(params, None, obs, (), np.zeros((1, 6), bool))[0]
        first = jax.tree.leaves(outputs.prediction)[0][0, 0]
        expected = v[at] + advantage[at] - advantage[at][LEGAL].mean(axis=0)
        np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-6)


def test_the_prior_of_a_search_has_no_illegal_actions():
    """So the log-probability that off-policy tracers compare is that of legal ones."""
    logits = np.random.default_rng(0).normal(size=(2, ACTIONS)).astype("f4")
    value = Scalar(np.ones((2, 1), "f4"))
    model = muzero.MuZeroNetworks(
        represent=lambda params, obs: obs["place"],
        dynamics=lambda *_: None,
        predict=lambda params, hidden: heads.PredictionOutput(logits, value),
        init=lambda key: {},
    )
    planning = muzero._planning_model(
        model, muzero.value_transform(None), MASKED.action
    )
    obs = {action_masks.MASK: np.tile(MASK, (2, 1)), "place": np.zeros((2, ENTRIES))}
    found = jax.nn.softmax(planning.root({}, obs).logits)
    expected = jax.nn.softmax(logits[:, LEGAL])
    np.testing.assert_allclose(found[:, LEGAL], expected, rtol=1e-6)
    np.testing.assert_array_equal(found[:, ~MASK], 0)
    unmasked = planning.root({}, {"place": obs["place"]}).logits
    np.testing.assert_array_equal(unmasked, logits)


@pytest.mark.slow
def test_a_prior_learns_not_to_predict_illegal_actions_as_in_the_paper():
    """Below the root of a search nothing else keeps it from them."""
    probability = np.array([1, 2, 1, 3, 1], "f4") / 8
    goal = np.array([0, 1, 0, 3, 0], "f4") / 4
    one = np.ones((1, 1), "f4")
    value = Scalar(one)
    model = muzero.MuZeroNetworks(
        represent=lambda params, obs: obs,
        dynamics=lambda params, hidden, action: heads.DynamicsOutput(hidden, value),
        predict=lambda params, hidden: heads.PredictionOutput(
            jnp.broadcast_to(params, (1, 1, ACTIONS)), value
        ),
        init=lambda key: {},
    )
    both = np.ones((2, 1, 1), "f4")
    policy = np.broadcast_to(goal, (2, 1, 1, ACTIONS))
    targets = muzero.UnrollTargets(
        np.ones((2, 1, 1), int), policy, both, both, both, both, both
    )

    def loss(logits):
        squared, none = muzero.LOSSES["mse"], muzero.value_transform(None)
        settings = (model, squared, none, (0.0, 0.0), logits, one, targets)
        return jnp.sum(muzero.muzero_losses(*settings).terms[0].value)

    found, gradient = jax.value_and_grad(loss)(jnp.log(probability))
    by_hand = -2 * (np.log(2 / 8) / 4 + np.log(3 / 8) * 3 / 4)  # root and one step
    assert float(found) == pytest.approx(by_hand, rel=1e-5)
    np.testing.assert_allclose(gradient, 2 * (probability - goal), atol=1e-6)
