"""MuZero: targets and losses against NumPy loops; learning of known values."""

import itertools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from random_trees import normal_like

from rlcli import loop, recipe
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.networks.functions import Pair, separate_network
from rlcli.networks.torsos import linear
from rlcli.tracers.multi_step import lambda_return, n_step
from rlcli.types import Clock, Decision, Policy, Transition
from rlcli.updaters import Parts, Spaces
from rlcli.updaters.model_based.muzero import _halve_gradient, muzero, unroll_targets

OBSERVATION = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS, START, SIZE, K, N, GAMMA = 3, 2, 4, 3, 2, 0.9
STEPS, BATCH = 9, 40
STARTS = STEPS - N + 1 - K - 1
CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))
WEIGHTS = {"value_weight": 0.5, "reward_weight": 2.0}
ROUNDED = 1e-3  # float32 error of the inverse of h
slow = pytest.mark.slow


def make_updater(**options):
    """The updater on linear networks, with a policy that never acts."""

    def networks(name, head, observation=None, action=None):
        space = OBSERVATION if observation is None else observation
        space = space if action is None else Pair(space, action)
        return separate_network(name, linear(), head(), space)

    def policies(model):
        del model
        decision = Decision(jnp.zeros(BATCH, int), {"log_prob": jnp.zeros(BATCH)})
        return Policy(
            initial=lambda batch: ((), ()),
            draw=lambda key, batch: key,
            explore=lambda *_: (decision, ()),
            exploit=lambda *_: (decision, ()),
            log_prob=lambda logits, action: jnp.zeros(action.shape),
        )

    spaces = Spaces(OBSERVATION, gymnasium.spaces.Discrete(ACTIONS, start=START))
    options = {"size": SIZE, "steps": K, **WEIGHTS, **options}
    return muzero(Parts(spaces, networks, policies, optax.sgd(0.1)), **options)


def raw_steps(seed=0):
    """Raw steps `[STEPS, BATCH]` of several episodes, terminated and truncated."""
    rng = np.random.default_rng(seed)
    shape = STEPS, BATCH
    last = rng.random(shape) < 0.25
    weights = rng.random((*shape, ACTIONS)).astype("f4")
    numbers = rng.normal(size=(4, *shape, 3)).astype("f4")
    return Transition(
        obs=numbers[0],
        action=START + rng.integers(0, ACTIONS, shape),
        reward=numbers[2, ..., 0],
        discount=np.where(last & (rng.random(shape) < 0.5), 0, 1).astype("f4"),
        next_obs=numbers[1],
        first=np.concatenate([rng.random((1, BATCH)) < 0.5, last[:-1]]),
        last=last,
        extras={
            "action_weights": weights / weights.sum(-1, keepdims=True),
            "root_value": numbers[3, ..., 0],
        },
    )


def trace_rows(updater, state, steps, tracer):
    """Rows as agents compute them: the updater's estimates, then the tracer."""
    found = updater.estimate(state, steps, jax.random.key(0))
    kept = {"reward": steps.reward, "next_carry": found.carry}
    rows = steps._replace(extras={**steps.extras, **kept})
    return tracer.trace(rows, found)


@pytest.fixture(scope="module")
def random_learner():
    """The updater, and a learner with random parameters."""
    updater = make_updater()
    state = jax.jit(updater.init)(jax.random.key(0))
    return updater, state._replace(params=normal_like(state.params, seed=1))


# A second implementation of the model, for single vectors.


def layer(params, inputs, name="linear"):
    return inputs @ params[name]["w"] + params[name]["b"]


def scale_hidden(hidden):
    return (hidden - hidden.min()) / (hidden.max() - hidden.min())


def represent(params, obs):
    return scale_hidden(layer(params["representation"], obs))


def follow_dynamics(params, hidden, action):
    inputs = np.concatenate([hidden, np.eye(ACTIONS)[action - START]])
    reward = layer(params["dynamics"], inputs, "linear_1")[0]
    return scale_hidden(layer(params["dynamics"], inputs)), reward


def predict_outputs(params, hidden):
    value = layer(params["prediction"], hidden, "linear_1")[0]
    return layer(params["prediction"], hidden), value


def h(x):
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + 1e-3 * x


def inverse(z):
    """The inverse of h, by bisection."""
    low, high = -1e3, 1e3
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if h(middle) < z else (low, middle)
    return low


def reference_value(params, steps, t, b):
    """Reward by reward, to n steps or the end of the episode."""
    total = 0.0
    for k in range(N):
        total += GAMMA**k * steps.reward[t + k, b]
        if steps.last[t + k, b]:
            seen = steps.next_obs[t + k, b]
            value = inverse(predict_outputs(params, represent(params, seen))[1])
            return total + GAMMA ** (k + 1) * steps.discount[t + k, b] * value
    return total + GAMMA**N * steps.extras["root_value"][t + N, b]


def reference_targets(params, steps, t, b):
    """Targets of K steps from one start: (value, reward, policy), None if unknown."""
    found, state = [], "going"
    for k in range(K + 1):
        reward = 0.0 if state == "terminated" else None
        if k and state == "going":
            reward = steps.reward[t + k - 1, b]
            if steps.last[t + k - 1, b]:
                cut = steps.discount[t + k - 1, b] > 0
                state = "cut" if cut else "terminated"
        value, policy = (0.0 if state == "terminated" else None), None
        if state == "going":
            value = reference_value(params, steps, t + k, b)
            policy = steps.extras["action_weights"][t + k, b]
        found.append((value, reward, policy))
    return found


def for_each_start(function):
    """Applies the function to each start (t, b): `[STARTS, BATCH]`."""
    return [[function(t, b) for b in range(BATCH)] for t in range(STARTS)]


def test_targets_equal_a_loop_over_rewards_ends_and_time_limits(random_learner):
    updater, state = random_learner
    params = jax.tree.map(np.asarray, state.params)
    steps = raw_steps()

    @jax.jit
    def found():
        tracer = n_step(n=N, gamma=GAMMA)
        return unroll_targets(trace_rows(updater, state, steps, tracer), K)

    goals = jax.device_get(found())
    assert goals.value.shape == (K + 1, STARTS, BATCH)
    kinds = set()
    for t, row in enumerate(
        for_each_start(lambda t, b: reference_targets(params, steps, t, b))
    ):
        for b, along in enumerate(row):
            for k, (value, reward, policy) in enumerate(along):
                at = k, t, b
                kinds.add((value is None, reward is None, policy is None))
                assert goals.action[at] == steps.action[t + k, b]
                assert goals.value_weight[at] == (value is not None)
                assert goals.reward_weight[at] == (reward is not None)
                assert goals.policy_weight[at] == (policy is not None)
                if value is not None:
                    assert goals.value[at] == pytest.approx(value, abs=ROUNDED)
                if reward is not None:
                    assert goals.reward[at] == pytest.approx(reward, abs=1e-6)
                if policy is not None:
                    np.testing.assert_allclose(goals.policy[at], policy, rtol=1e-6)
    # All cases occur: start, middle, termination, truncation, after a truncation.
    assert len(kinds) == 5


def reference_loss(params, steps, t, b):
    """(ℓ, |error| at the start), term by term."""
    goals = reference_targets(params, steps, t, b)
    hidden = represent(params, steps.obs[t, b])
    total, error = 0.0, None
    for k, (value, reward, policy) in enumerate(goals):
        term = 0.0
        if k:
            hidden, foretold = follow_dynamics(
                params, hidden, steps.action[t + k - 1, b]
            )
            if reward is not None:
                term += WEIGHTS["reward_weight"] * (h(reward) - foretold) ** 2
        logits, worth = predict_outputs(params, hidden)
        if value is not None:
            error = h(value) - worth if k == 0 else error
            term += WEIGHTS["value_weight"] * (h(value) - worth) ** 2
        if policy is not None:
            log_prob = logits - np.log(np.sum(np.exp(logits)))
            term -= np.sum(policy * log_prob)
        total += term if k == 0 else term / K
    return total, abs(error)


def test_the_loss_equals_that_of_a_model_unrolled_in_numpy(random_learner):
    updater, state = random_learner
    params = jax.tree.map(np.asarray, state.params)
    steps = raw_steps(seed=2)
    rng = np.random.default_rng(3)
    weight = rng.choice([0.0, 0.3, 1.0], (STEPS - N + 1, BATCH)).astype("f4")

    @jax.jit
    def updated():
        rows = trace_rows(updater, state, steps, n_step(n=N, gamma=GAMMA))
        return updater.update(state, rows, weight, CLOCK, jax.random.key(0))

    after, report = updated()
    by_hand = np.array(for_each_start(lambda t, b: reference_loss(params, steps, t, b)))
    counts = weight[:STARTS]
    expected = np.sum(by_hand[..., 0] * counts) / np.sum(counts > 0)
    assert float(report.metrics["loss"]) == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(report.priority, by_hand[..., 1], atol=ROUNDED)
    after_params = jax.device_get(after.params)
    moved = jax.tree.map(lambda a, b: np.any(a != b), after_params, state.params)
    assert all(jax.tree.leaves(moved))


@pytest.mark.slow
def test_with_a_target_values_bootstrap_from_its_parameters(random_learner):
    _, state = random_learner
    updater = make_updater(target={"polyak": 0.5}, steps=1)
    state = state._replace(target=normal_like(state.params, seed=4))
    params, target_params = jax.tree.map(np.asarray, (state.params, state.target))
    steps = raw_steps(seed=5)
    rows = jax.jit(
        lambda: trace_rows(updater, state, steps, n_step(n=N, gamma=GAMMA))
    )()
    weight = np.ones(rows.reward.shape, "f4")
    after, report = jax.jit(updater.update)(
        state, rows, weight, CLOCK, jax.random.key(0)
    )

    def value_error(t, b):
        _, at_next = predict_outputs(
            target_params, represent(target_params, rows.next_obs[t, b])
        )
        value = rows.reward[t, b] + rows.discount[t, b] * inverse(at_next)
        _, prediction = predict_outputs(params, represent(params, steps.obs[t, b]))
        return abs(h(value) - prediction)

    errors = np.array([[value_error(t, b) for b in range(BATCH)] for t in range(3)])
    np.testing.assert_allclose(report.priority[:3], errors, atol=ROUNDED)
    moved = jax.tree.map(lambda new, old: (new + old) / 2, after.params, state.target)
    jax.tree.map(np.testing.assert_allclose, after.target, moved)


def test_the_gradient_through_the_dynamics_is_halved():
    squares = jax.value_and_grad(lambda x: jnp.sum(_halve_gradient(x) ** 2))
    value, gradient = jax.jit(squares)(np.array([3, -1], "f4"))
    assert float(value) == 10.0
    np.testing.assert_allclose(gradient, [3.0, -1.0])  # and not 6, −2


def test_search_values_can_be_mixed_by_lambda_returns(random_learner):
    updater, state = random_learner
    params = jax.tree.map(np.asarray, state.params)
    steps = raw_steps(seed=4)
    lam = 0.7

    @jax.jit
    def found():
        tracer = lambda_return(gamma=GAMMA, lambda_=lam)
        return unroll_targets(trace_rows(updater, state, steps, tracer), K)

    goals = jax.device_get(found())
    for b in range(BATCH):
        own = [
            inverse(predict_outputs(params, represent(params, o))[1])
            for o in steps.next_obs[:, b]
        ]
        value, expected = own[-1], np.zeros(STEPS)
        for t in reversed(range(STEPS)):
            ahead = own[t]
            if t + 1 < STEPS and not steps.last[t, b]:
                ahead = steps.extras["root_value"][t + 1, b]
                ahead = (1 - lam) * ahead + lam * value
            value = steps.reward[t, b] + GAMMA * steps.discount[t, b] * ahead
            expected[t] = value
        there = len(goals.value[0])
        np.testing.assert_allclose(goals.value[0, :, b], expected[:there], atol=ROUNDED)


def test_fewer_rows_than_the_model_unrolls_are_refused():
    rows = raw_steps()._replace(reward=np.zeros((K + 1, BATCH), "f4"))
    with pytest.raises(
        RlcliError, match="for 3 steps, which needs 5 consecutive rows, but"
    ):
        unroll_targets(rows, K)


def test_continuous_actions_are_refused():
    spaces = Spaces(OBSERVATION, gymnasium.spaces.Box(-1, 1, (2,), np.float32))
    with pytest.raises(RlcliError, match="`muzero` needs a Discrete action space"):
        muzero(Parts(spaces, None, None, None))


def probe_recipe(probe, steps=16 * 400, **more):
    """A recipe on a probe."""
    return {
        "environment": {"name": f"probe-{probe}", "num_envs": 16},
        "network": {"name": "mlp", "layers": [16]},
        "policy": {"name": "gumbel_muzero", "simulations": 6},
        "tracer": {"name": "n_step", "n": 1, "gamma": GAMMA},
        "replay": {"name": "uniform", "capacity": 2_048, "batch_size": 64},
        "updater": {"name": "muzero", "size": 8, "steps": 2},
        "optimizer": {"name": "adam", "learning_rate": {"from": 0.01, "to": 0.0}},
        "train": {"steps": steps, "start": 256, "warmup": "random", "updates": 3},
        **more,
    }


MEMORY = {"name": "mlp", "layers": [4], "memory": {"name": "gru", "size": 4}}
SHARED = {"shared": "mlp", "representation": {}, "dynamics": {}, "prediction": {}}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"network": MEMORY}, "`muzero` does not support recurrent networks"),
        (
            {"network": SHARED},
            "`dynamics` does not take the environment's observations",
        ),
        (
            {"network": {"name": "mlp", "head": "categorical"}},
            "does not predict returns",
        ),
        (
            {"policy": "random"},
            "policy `random` requires `space`, which updater `muzero`",
        ),
    ],
    ids=["memory", "shared", "head", "policy"],
)
def test_recipes_that_cannot_plan_are_refused(more, message):
    with pytest.raises(RlcliError, match=message):
        build(recipe.load_recipe(probe_recipe("constant-reward", **more)))


VALUES = {  # probe -> observation -> value of the best policy, and its action, if one
    "constant-reward": {0: (1, None)},
    "reward-depends-on-observation": {-1: (-1, None), 1: (1, None)},
    "two-steps": {0: (GAMMA, None), 1: (1, None)},
    "reward-depends-on-action": {0: (1, 1)},
    "truncation": {0: (1 / (1 - GAMMA), None)},
    "needs-memory": {-1: (1, 0), 1: (1, 1)},  # with a delay of 0: none
}
ATOMS = {"name": "categorical", "atoms": 21, "low": -2.0, "high": 3.0}
HEADS = {
    "scalar": {"name": "mlp", "layers": [16]},
    "categorical": {
        "representation": {"name": "mlp", "layers": [16]},
        "dynamics": {"name": "mlp", "layers": [16], "head": ATOMS},
        "prediction": {"name": "mlp", "layers": [16], "head": ATOMS},
    },
}


def learn_probe(probe, **more):
    """The greedy actions of a trained recipe on the observations of a probe."""
    pytest.importorskip("mctx")
    setup = build(recipe.load_recipe(probe_recipe(probe, **more)))
    progress, _ = (engine := loop.make_loop(setup)).advance(engine.begin(), 400)
    agent = setup.agent
    assert int(agent.failed_at(progress.agent)[0]) == -1
    acting = jax.tree.map(lambda leaf: leaf[0], agent.acting(progress.agent))
    obs = jnp.array(list(VALUES[probe]), jnp.float32)[:, None]
    first = jnp.ones(len(obs), bool)
    noise = agent.policy.draw(jax.random.key(0), len(obs))
    seen = (obs, agent.policy.initial(len(obs)), first, noise)
    return jax.jit(agent.policy.exploit)(acting, *seen)[0]


QUICK = [("truncation", "scalar")]


@pytest.mark.parametrize(
    ("probe", "head"),
    [
        pytest.param(*each, marks=() if each in QUICK else slow)
        for each in itertools.product(VALUES, HEADS)
    ],
)
def test_search_and_model_learn_values_and_actions_of(probe, head):
    environment = {"name": f"probe-{probe}", "num_envs": 16}
    if probe == "needs-memory":
        environment["delay"] = 0
    decision = learn_probe(probe, network=HEADS[head], environment=environment)
    values, actions = zip(*VALUES[probe].values(), strict=True)
    np.testing.assert_allclose(
        decision.extras["root_value"], values, rtol=0.1, atol=0.1
    )
    for found, action in zip(decision.action, actions, strict=True):
        assert action is None or found == action
