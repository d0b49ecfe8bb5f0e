"""Policy gradients and their regularizers against plain formulas and loops."""

import functools

import chex
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rlax
from tiers import quick_first

from rlcli import distributions, loop, recipe
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.networks.functions import separate_network
from rlcli.networks.torsos import table
from rlcli.policies.sampled import sampled
from rlcli.tracers import off_policy as tracers
from rlcli.tracers.multi_step import lambda_return
from rlcli.training.experiment.program import Program
from rlcli.types import Clock, Transition
from rlcli.updaters import Parts, Spaces
from rlcli.updaters.policy_gradient import actor_critic
from rlcli.updaters.policy_gradient.cross_entropy import cross_entropy
from rlcli.updaters.policy_gradient.ppo import ppo
from rlcli.updaters.policy_gradient.v_trace import v_trace
from rlcli.updaters.policy_gradient.vanilla_pg import a2c, reinforce, vanilla_pg
from rlcli.updaters.regularizers import entropy_bonus, fill_defaults, penalties

CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))
KEY = jax.random.key(0)
STATES, ACTIONS, SHAPE = 5, 3, (6, 4)
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(STATES, ACTIONS)).astype("f4")
LOG_PROBS = LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True))
VALUES = RNG.normal(size=STATES).astype("f4")
COUNTS = RNG.choice([0.0, 0.5, 1.0, 2.0], SHAPE).astype("f4")
ONES = np.ones(SHAPE, "f4")
FAMILY = distributions.categorical(ACTIONS)


def store_gradient():
    """An optimizer that stores the gradient and never changes parameters."""
    zeros = optax.tree.zeros_like
    return optax.GradientTransformation(zeros, lambda new, _, params: (zeros(new), new))


def updater(factory, optimizer=None, **options):
    observation = gymnasium.spaces.Discrete(STATES)

    def networks(name, head):
        return separate_network(name, table(), head(), observation)

    def policies(distribution, space):
        return sampled(distribution)

    spaces = Spaces(observation, gymnasium.spaces.Discrete(ACTIONS))
    parts = Parts(spaces, networks, policies, optimizer or store_gradient())
    return factory(parts, **options)


def _replace_leaf(numbers, leaf):
    assert leaf.shape == numbers.shape
    return numbers


def state_of(ours):
    """A learner with `LOGITS` and `VALUES` in its tables."""
    state = jax.jit(ours.init)(KEY)
    numbers = {"policy": LOGITS, "value": VALUES[:, None]}
    params = {
        name: jax.tree.map(functools.partial(_replace_leaf, numbers[name]), each)
        for name, each in state.params.items()
    }
    return state._replace(params=params)


def batch(seed=1, **fields):
    rng = np.random.default_rng(seed)
    action = rng.integers(0, ACTIONS, SHAPE)
    obs, next_obs = rng.integers(0, STATES, (2, *SHAPE))
    rows = Transition(
        obs=obs,
        action=action,
        reward=rng.normal(size=SHAPE).astype("f4"),
        discount=rng.choice([0.0, 0.9], SHAPE).astype("f4"),
        next_obs=next_obs,
        first=np.zeros(SHAPE, bool),
        last=rng.random(SHAPE) < 0.3,
        extras={"log_prob": LOG_PROBS[obs, action]},
    )
    return rows._replace(**fields)


def log_probs(logits, obs, action):
    return jax.nn.log_softmax(logits)[obs, action]


def gradients(ours, rows, weight=ONES, update=None):
    """The gradient of one update: of the logits, and of the values if any."""
    update = update or jax.jit(ours.update)
    state, report = update(state_of(ours), rows, weight, CLOCK, KEY)
    assert state.failed == -1
    found = [jax.tree.leaves(state.optimizer[name]) for name in state.params]
    return [np.asarray(leaf).squeeze() for (leaf,) in found], report


def error_of(rows, values=VALUES):
    target = rows.reward + rows.discount * values[rows.next_obs]
    return target, target - values[rows.obs]


def weighted(term, weight):
    return jnp.sum(term * weight) / jnp.sum(weight > 0)


@pytest.mark.parametrize("normalize", quick_first([True, False]))
def test_the_policy_gradient_equals_the_plain_formula(normalize):
    rows = batch()
    target, error = error_of(rows)

    @jax.jit
    @functools.partial(jax.grad, argnums=(0, 1))
    def gradient(logits, values, advantage, weight):
        there = jnp.sign(weight)  # importance weights scale only the value loss
        chosen = log_probs(logits, rows.obs, rows.action)
        critic = 0.5 * (values[rows.obs] - target) ** 2
        entropy = -jnp.sum(jax.nn.softmax(logits) * jax.nn.log_softmax(logits), axis=-1)
        return (
            weighted(-chosen * advantage, there)
            + 0.7 * weighted(critic, weight)
            - 0.2 * weighted(entropy[rows.obs], there)
        )

    options = {"value_weight": 0.7, "normalize_advantage": normalize}
    options["regularizers"] = [{"name": "entropy", "weight": 0.2}]
    ours = updater(vanilla_pg, **options)
    update = jax.jit(ours.update)
    for weight in (ONES, COUNTS):
        some = error[weight > 0]
        scaled = (error - some.mean()) / (some.std() + 1e-8) if normalize else error
        expected = gradient(LOGITS, VALUES, scaled, weight)
        found, _ = gradients(ours, rows, weight, update)
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Rlax softmax")
def test_without_a_baseline_there_is_no_critic_and_the_return_is_the_weight():
    rows = batch()

    def loss(logits):
        chosen, target = logits[rows.obs.ravel()], rows.reward.ravel()
        return rlax.policy_gradient_loss(
            chosen, rows.action.ravel(), target, np.ones_like(target), False
        )

    expected = jax.jit(jax.grad(loss))(LOGITS)
    for ours in (
        updater(reinforce),
        updater(vanilla_pg, baseline=False, regularizers=[]),
    ):
        (found,), report = gradients(ours, rows)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        state = state_of(ours)
        assert set(state.params) == {"policy"}
        assert "explained_variance" not in report.metrics
        assert not np.any(jax.jit(ours.estimate)(state, rows, KEY).v_t)


@pytest.mark.filterwarnings("ignore:Rlax softmax")
def test_off_policy_gradients_equal_rlax():
    raw = batch(discount=np.ones(SHAPE, "f4"), last=np.zeros(SHAPE, bool))
    raw = raw._replace(next_obs=np.concatenate([raw.obs[1:], raw.next_obs[-1:]]))
    noise = np.random.default_rng(2).normal(size=SHAPE).astype("f4")
    log_prob = raw.extras["log_prob"] - noise  # so unlike is the policy that acted
    raw = raw._replace(extras={"log_prob": log_prob})
    traced = jax.jit(jax.vmap(rlax.vtrace_td_error_and_advantage, 1, 1))(
        VALUES[raw.obs],
        VALUES[raw.next_obs],
        raw.reward,
        np.full(SHAPE, 0.9, "f4"),
        np.exp(noise),
    )

    def loss(logits, values):
        chosen = log_probs(logits, raw.obs, raw.action)
        td_error = values[raw.obs] - VALUES[raw.obs] - traced.errors
        return jnp.mean(-chosen * traced.pg_advantage + 0.25 * td_error**2)

    ours = updater(v_trace, regularizers=[])
    tracer = tracers.v_trace(gamma=0.9)
    estimates = jax.jit(ours.estimate)(state_of(ours), raw, KEY)
    found, report = gradients(ours, jax.jit(tracer.trace)(raw, estimates))
    expected = jax.jit(jax.grad(loss, (0, 1)))(LOGITS, VALUES)
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)
    assert report.metrics["ratio"] == pytest.approx(np.mean(np.exp(noise)), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ({"filter": "positive"}, lambda a: np.where(a > 0, a, 0)),
        ({"filter": "binary"}, lambda a: np.where(a > 0, 1, 0)),
        (
            {"filter": "exponential", "temperature": 0.2},
            lambda a: np.minimum(np.exp(a / 0.2), 20),
        ),
        ({"filter": "none"}, np.ones_like),
    ],
)
def test_cross_entropy_imitates_actions_by_filter_weight(options, share):
    rows = batch()
    kept = share(error_of(rows)[1])
    ours = updater(cross_entropy, regularizers=[], **options)
    (found, _), report = gradients(ours, rows)
    expected = np.zeros_like(LOGITS)  # of the mean of −kept log π(a|s)
    for at in np.ndindex(SHAPE):
        obs, action = rows.obs[at], rows.action[at]
        slope = np.eye(ACTIONS)[action] - np.exp(LOG_PROBS[obs])
        expected[obs] -= kept[at] * slope / kept.size
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert report.metrics["imitated"] == pytest.approx(np.mean(kept > 0))


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e6 + 0.3])
@pytest.mark.parametrize("shape", [(1, 1), (8, 16), (100, 3)])
def test_equal_advantages_are_normalized_to_0(value, shape):
    """The mean of equal numbers is rounded: its error is no deviation."""
    advantage = np.full(shape, value, "f4")
    ones = np.ones(shape, "f4")
    standardize = jax.jit(actor_critic.standardize)
    np.testing.assert_array_equal(standardize(advantage, ones), 0 * ones)
    # Rows of weight 0 do not count.
    advantage, weight = np.append(advantage, 5 * ones, 0), np.append(ones, 0 * ones, 0)
    scaled = standardize(advantage, weight)[: len(ones)]
    np.testing.assert_array_equal(scaled, 0 * ones)


def test_an_advantage_of_n_is_normalized_to_the_square_root_of_n_minus_1_at_most():
    advantage = np.zeros((10, 10), "f4")
    advantage[3, 4] = 1e6
    scaled = jax.jit(actor_critic.standardize)(advantage, np.ones((10, 10), "f4"))
    expected = np.full((10, 10), -1 / np.sqrt(99))
    expected[3, 4] = np.sqrt(99)
    np.testing.assert_allclose(scaled, expected, rtol=1e-5)


def test_there_is_no_variance_to_explain_of_equal_targets():
    """1 − Var[G − v] / 10⁻⁸ would be −10⁸."""
    ones = np.ones((2, 3), "f4")
    for value, expected in ((np.arange(6.0).reshape(2, 3), 0.0), (3 * ones, 1.0)):
        rows = actor_critic.Batch(batch(), ones, 0.1 * ones, value, ones, {})
        explained = actor_critic.explained_variance(rows)
        assert explained == pytest.approx(expected, abs=1e-5)


def test_priority_and_explained_variance_use_rows_of_positive_weight():
    rows = batch()
    target, error = error_of(rows)
    ours = updater(a2c)
    update, counts = jax.jit(ours.update), COUNTS > 0
    _, report = gradients(ours, rows, COUNTS, update)
    explained = 1 - np.var(error[counts]) / np.var(target[counts])
    assert report.metrics["explained_variance"] == pytest.approx(explained, rel=1e-4)
    expected = [
        np.abs(error[:, i][counts[:, i]]).sum() / max(counts[:, i].sum(), 1)
        for i in range(SHAPE[1])
    ]
    np.testing.assert_allclose(report.priority, expected, rtol=1e-5)
    rows = rows._replace(reward=rows.reward + 9 * ~counts)
    _, other = gradients(ours, rows, COUNTS, update)
    for name, value in report.metrics.items():
        np.testing.assert_allclose(other.metrics[name], value, rtol=1e-4, err_msg=name)


@pytest.mark.slow
def test_a_clipped_value_loss_is_the_larger_error():
    rows = batch()
    target, _ = error_of(rows)
    old = VALUES[rows.obs]
    steps = {"optimizer": optax.sgd(1.0), "epochs": 2, "minibatches": 1}
    steps |= {"regularizers": [], "value_weight": 30.0}
    ours = updater(ppo, value_clip_ratio=0.1, **steps)
    state, _ = jax.jit(ours.update)(state_of(ours), rows, ONES, CLOCK, KEY)
    (found,) = jax.tree.leaves(state.params["value"])

    def loss(values):
        value = values[rows.obs]
        clipped = old + jnp.clip(value - old, -0.1, 0.1)
        greater = jnp.maximum((value - target) ** 2, (clipped - target) ** 2)
        return 30.0 * 0.5 * jnp.mean(greater)

    gradient = jax.jit(jax.grad(loss))
    values = VALUES - np.asarray(gradient(VALUES))
    assert np.any(np.abs(values[rows.obs] - old) > 0.1)  # the second step is clipped
    values = values - np.asarray(gradient(values))
    np.testing.assert_allclose(found, values[:, None], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_updates_stop_once_the_kl_limit_is_exceeded():
    rows = batch()
    options = {"optimizer": optax.sgd(0.5, momentum=0.9), "minibatches": 1}

    def after(epochs, limit):
        ours = updater(ppo, epochs=epochs, kl_limit=limit, **options)
        return jax.jit(ours.update)(state_of(ours), rows, ONES, CLOCK, KEY)

    (stopped, report), (once, _) = after(4, 1e-6), after(1, None)
    going, unstopped = after(4, 1e6)
    # The programs of one and of four epochs may round differently.
    for name in ("params", "optimizer"):
        found, expected = (getattr(each, name) for each in (stopped, once))
        chex.assert_trees_all_close(found, expected, rtol=1e-6, atol=1e-7)
    assert not np.allclose(*(jax.tree.leaves(each.params)[0] for each in (going, once)))
    assert report.metrics["stopped"] == 0.75
    assert unstopped.metrics["stopped"] == 0


@pytest.mark.slow
def test_a_nan_loss_is_reported_with_a_kl_limit():
    rows = batch()
    rows.extras["log_prob"] = np.full(SHAPE, np.nan, "f4")
    ours = updater(ppo, kl_limit=0.1)
    state, _ = jax.jit(ours.update)(state_of(ours), rows, ONES, CLOCK, KEY)
    assert state.failed == 0


def test_divergences_equal_a_sum_over_actions():
    rng = np.random.default_rng(5)
    now, old = rng.normal(size=(2, *SHAPE, ACTIONS)).astype("f4")
    p, q = (np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (now, old))
    regularizers = fill_defaults(
        [
            {"name": "entropy", "weight": 2.0},
            {"name": "kl", "weight": 3.0},
            {"name": "kl", "weight": 0.5, "to": "old"},
            {"name": "n_step_entropy", "weight": 1.0},
        ]
    )
    terms = jax.jit(lambda *each: penalties(regularizers, FAMILY, *each))(
        now, {"old": old}
    )
    found = [term.value for term in terms]
    expected = [
        2.0 * np.sum(p * np.log(p), -1),
        3.0 * np.sum(p * np.log(p * ACTIONS), -1),
        0.5 * np.sum(q * np.log(q / p), -1),
    ]
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


def test_the_old_policy_stays_constant_during_an_update():
    # With a dominant KL term, several steps hardly change the policy.
    rows, options = batch(), {"epochs": 50, "minibatches": 1}

    @jax.jit
    def learned_logits(weight):
        pull = [{"name": "kl", "weight": weight, "to": "old"}]
        ours = updater(ppo, optax.sgd(0.01), regularizers=pull, **options)
        state, _ = ours.update(state_of(ours), rows, ONES, CLOCK, KEY)
        (logits,) = jax.tree.leaves(state.params["policy"])
        return logits

    moved = {
        weight: np.abs(learned_logits(weight) - LOGITS).max() for weight in (0.0, 1e3)
    }
    assert 0 < moved[1e3] < 0.2 * moved[0.0]


def test_later_entropies_count_until_the_episode_ends():
    rng = np.random.default_rng(2)
    last = np.zeros((5, 2), bool)
    last[2, 0] = True  # terminated: the next row belongs to another episode
    last[3, 1] = True  # cut short
    discount = np.ones((5, 2), "f4")
    discount[2, 0] = 0.0
    entropy = rng.random((5, 2)).astype("f4")
    options = {"name": "n_step_entropy", "weight": 0.3, "gamma": 0.9, "lambda": 0.8}
    bonus = jax.jit(functools.partial(entropy_bonus, fill_defaults([options])))
    found = bonus(entropy * discount, last)
    expected = np.zeros((5, 2))
    for t in range(5):
        for b in range(2):
            for k in range(1, 6 - t):
                there = entropy[t + k - 1, b] * discount[t + k - 1, b]
                expected[t, b] += 0.3 * 0.9**k * 0.8 ** (k - 1) * there
                if last[t + k - 1, b]:
                    break
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    discounted = jax.jit(jax.vmap(rlax.discounted_returns, (1, 1, None), 1))
    continues = (0.9 * 0.8 * ~last).astype("f4")
    returns = np.asarray(discounted(0.9 * entropy * discount, continues, 0.0))
    np.testing.assert_allclose(found, 0.3 * returns, rtol=1e-5)


@pytest.mark.slow
def test_with_the_tracers_gamma_and_lambda_returns_are_soft_values():
    # As if each reward included the entropy at the next state.
    weight, gamma, mixing = 0.3, 0.9, 0.8
    soft = {
        "name": "n_step_entropy",
        "weight": weight,
        "gamma": gamma,
        "lambda": mixing,
    }
    ours = updater(a2c, value_weight=1.0, regularizers=[soft])
    tracer, raw = lambda_return(gamma=gamma, lambda_=mixing), batch()
    raw = raw._replace(
        discount=np.where(raw.last & (raw.action > 0), 0, 1).astype("f4")
    )
    estimates = jax.jit(ours.estimate)(state_of(ours), raw, KEY)
    trace = jax.jit(tracer.trace)
    rows = trace(raw, estimates)
    rows.extras["next_carry"] = estimates.carry
    (_, found), _ = gradients(ours, rows)
    p = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
    entropy = -np.sum(p * np.log(p), -1)[raw.next_obs]
    soft_rows = raw._replace(
        reward=raw.reward + weight * gamma * raw.discount * entropy
    )
    plain = updater(a2c, value_weight=1.0)
    (_, expected), _ = gradients(plain, trace(soft_rows, estimates))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("regularizer", "option"),
    [
        ({"name": "entropy", "weight": 1.0, "gamma": 0.9}, "gamma"),
        ({"name": "kl", "weight": 1.0, "lambda": 0.9}, "lambda"),
        ({"name": "n_step_entropy", "weight": 1.0, "to": "old"}, "to"),
    ],
)
def test_an_option_of_another_regularizer_is_refused(regularizer, option):
    with pytest.raises(RlcliError, match=f"has no option `{option}`"):
        fill_defaults([regularizer])


ALL = [
    {"name": "entropy", "weight": 0.01},
    {"name": "kl", "weight": {"from": 0.1, "to": 0.0}},
    {"name": "kl", "weight": 0.1, "to": "old"},
    {"name": "n_step_entropy", "weight": 0.01},
]
NETWORKS = {
    "none": {"name": "mlp", "layers": [8]},
    "gru": {"name": "mlp", "layers": [8], "memory": {"name": "gru", "size": 4}},
    "shared": {
        "shared": {"name": "linear", "memory": "lstm"},
        "policy": {},
        "value": {},
    },
    "one": {
        "policy": "linear",
        "value": {"name": "linear", "memory": {"name": "lstm", "size": 4}},
    },
}
UPDATERS = {
    "ppo": {"value_clip_ratio": 0.2, "kl_limit": 0.02, "regularizers": ALL},
    "vanilla_pg": {"normalize_advantage": True, "regularizers": ALL},
    "a2c": {},
    "reinforce": {"regularizers": ALL},
    "cross_entropy": {"filter": "exponential", "epochs": 2},
    "pqn": {},
}


def data_of(name, network, probe="probe-needs-memory", **train):
    return {
        "environment": {"name": probe, "num_envs": 4},
        "network": network,
        "updater": {"name": name, **UPDATERS[name]},
        "train": {"steps": 1_000, "unroll": 8, **train},
    }


@pytest.mark.parametrize(
    ("name", "network"),
    [
        pytest.param(name, network, marks=() if fast else pytest.mark.slow)
        for name in UPDATERS
        for network in NETWORKS
        for fast in [(name, network) in {("ppo", "gru")}]
    ],
)
def test_every_updater_supports_every_memory(name, network):
    chosen = dict(NETWORKS[network])
    if name in ("reinforce", "pqn") and "value" in chosen:
        del chosen["value"]
    if name == "pqn":
        chosen = {"q" if key == "policy" else key: each for key, each in chosen.items()}
    parsed = recipe.load_recipe(data_of(name, chosen))
    Program(parsed, build(parsed)).check()


@pytest.mark.parametrize("name", quick_first(["a2c", "ppo", "cross_entropy"]))
def test_every_objective_supports_continuous_actions(name):
    data = data_of(name, NETWORKS["gru"], "probe-continuous-action")
    parsed = recipe.load_recipe(data)
    Program(parsed, build(parsed)).check()


@pytest.mark.slow
def test_with_recurrent_networks_the_first_ratio_is_one():
    data = data_of("ppo", NETWORKS["gru"])
    data["updater"] = {"name": "ppo", "epochs": 1, "minibatches": 1, "sequence": 4}
    engine = loop.make_loop(build(recipe.load_recipe(data)))
    _, log = engine.advance(engine.begin(), 1)
    assert log.metrics["clip_fraction"][0, 0] == 0.0
    assert log.metrics["kl"][0, 0] == pytest.approx(0.0, abs=1e-6)


def test_recurrence_is_refused_by_parts_that_do_not_support_it():
    data = data_of("a2c", NETWORKS["gru"])
    with pytest.raises(RlcliError, match="does not support recurrent networks"):
        build(recipe.load_recipe({**data, "updater": "sac", "tracer": "n_step"}))
    own = {"name": "rlcli.networks.torsos:Torso", "memory": "gru"}
    with pytest.raises(RlcliError, match="which cannot have a `memory`"):
        build(recipe.load_recipe({**data, "network": own}))
