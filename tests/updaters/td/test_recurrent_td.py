"""TD updaters with recurrent networks against networks stepped one at a time."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from random_trees import normal_like

from rlcli import recipe, registry
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.networks import memory
from rlcli.networks.functions import separate_network
from rlcli.networks.heads import action_values_head
from rlcli.networks.torsos import mlp
from rlcli.policies.discrete import epsilon_greedy
from rlcli.tracers.multi_step import n_step
from rlcli.types import Clock, Transition
from rlcli.updaters import Parts, Spaces
from rlcli.updaters.learner import NOT_FAILED

OBSERVATION = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
ACTIONS, SIZE, STEPS, BATCH, N, GAMMA, EPSILON = 3, 4, 9, 5, 2, 0.9, 0.2
CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))


def recurrent_network(name, head, action=None, copies=None, **options):
    made = head(**options), OBSERVATION, copies, memory.gru(size=SIZE)
    return separate_network(name, mlp(layers=[5]), *made)


def steps(seed=0):
    """Raw steps of several episodes, and the carry before the first."""
    rng = np.random.default_rng(seed)
    shape = STEPS, BATCH
    last = rng.random(shape) < 0.3
    numbers = rng.normal(size=(2, *shape, 2)).astype("f4")
    return Transition(
        obs=numbers[0],
        action=rng.integers(0, ACTIONS, shape),
        reward=rng.normal(size=shape).astype("f4"),
        discount=np.where(last & (rng.random(shape) < 0.5), 0, 1).astype("f4"),
        next_obs=numbers[1],
        first=np.concatenate([rng.random((1, BATCH)) < 0.5, last[:-1]]),
        last=last,
        extras={"carry": rng.normal(size=(1, BATCH, SIZE)).astype("f4")},
    )


def make_updater(name, epsilon=EPSILON, head=None, **options):
    """An updater, and a learner with random parameters and target parameters."""

    def policies(values, space):
        return epsilon_greedy(values, space, epsilon=epsilon)

    networks = functools.partial(recurrent_network, **(head or {}))
    spaces = Spaces(OBSERVATION, gymnasium.spaces.Discrete(ACTIONS))
    factory = registry.find("updater", name).factory
    target = {"every": 100}
    parts = Parts(spaces, networks, policies, optax.sgd(1.0))
    ours = factory(parts, target=target, **options)
    shapes = jax.eval_shape(ours.init, jax.random.key(0))
    params, target_params = (normal_like(shapes.params, seed, 0.5) for seed in (1, 2))
    failed = np.int32(NOT_FAILED)  # SGD has no state
    return ours, shapes._replace(params=params, target=target_params, failed=failed)


@pytest.fixture(scope="module")
def one_step():
    """`(params, obs[2], carry[4], first) -> q[3], carry[4]`, compiled once."""
    network = recurrent_network("q", functools.partial(action_values_head, ACTIONS))

    @jax.jit
    def step(params, obs, carry, first):
        found, after = network.apply(
            params, None, obs[None, None], carry[None], jnp.reshape(first, (1, 1))
        )
        return found[0, 0], after[0, 0]

    return step


def one_at_a_time(step, rows, params, b):
    """q(s, ·) and q(s′, ·) of each step of an environment, with its carry."""
    carry, here, there = rows.extras["carry"][0, b], [], []
    for t in range(STEPS):
        q, carry = step(params, rows.obs[t, b], carry, rows.first[t, b])
        here.append(q)
        there.append(step(params, rows.next_obs[t, b], carry, False)[0])
    return np.array(here), np.array(there)


def expected_bootstrap(name, online, target):
    """The bootstrap value of the rule, from the values of one next observation."""
    if name == "double_q_learning":
        return target[online.argmax()]
    greedy = EPSILON / ACTIONS + (1 - EPSILON) * (target == target.max())
    return greedy @ target


@pytest.mark.parametrize(
    "name",
    ["double_q_learning", pytest.param("expected_sarsa", marks=pytest.mark.slow)],
)
def test_errors_equal_those_of_networks_stepped_one_at_a_time(name, one_step):
    rows, (ours, state) = steps(), make_updater(name)
    bootstrap = functools.partial(expected_bootstrap, name)
    assert ours.traits.requires == ("carry",)

    @jax.jit
    def update(state):
        estimates = ours.estimate(state, rows, jax.random.key(0))
        seen = {**rows.extras, "next_carry": estimates.carry}
        traced = n_step(n=N, gamma=GAMMA).trace(rows._replace(extras=seen), estimates)
        weight = jnp.ones(traced.reward.shape)
        return estimates, ours.update(state, traced, weight, CLOCK, jax.random.key(2))

    estimates, (_, report) = jax.device_get(update(state))
    assert report.priority.shape == (STEPS - N + 1, BATCH)
    for b in range(BATCH):
        here, there = one_at_a_time(one_step, rows, state.params, b)
        target_here, target = one_at_a_time(one_step, rows, state.target, b)
        taken = here[np.arange(STEPS), rows.action[:, b]]
        for estimate, expected in {
            "q_tm1": target_here[np.arange(STEPS), rows.action[:, b]],
            "v_tm1": [*map(bootstrap, here, target_here)],
            "v_t": [*map(bootstrap, there, target)],
        }.items():
            actual = getattr(estimates, estimate)[:, b]
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
        for t in range(STEPS - N + 1):
            goal, discount = 0.0, 1.0
            for k in range(t, t + N):
                goal += discount * rows.reward[k, b]
                discount *= GAMMA * rows.discount[k, b]
                if rows.last[k, b]:
                    break
            goal += discount * expected_bootstrap(name, there[k], target[k])
            error = abs(goal - taken[t])
            assert report.priority[t, b] == pytest.approx(error, rel=1e-3, abs=1e-5)


@pytest.mark.slow
def test_sarsa_samples_the_next_action_with_the_carry_of_the_next_step():
    """A greedy policy samples the action that double Q-learning selects."""
    rows = steps()

    def priorities(name):
        ours, state = make_updater(name, epsilon=0.0)

        @jax.jit
        def update(state):
            carry = ours.estimate(state, rows, jax.random.key(0)).carry
            seen = rows._replace(extras={**rows.extras, "next_carry": carry})
            weight = jnp.ones(rows.reward.shape)
            return ours.update(state, seen, weight, CLOCK, jax.random.key(2))

        return update(state)[1].priority

    sarsa, double_q_learning = map(priorities, ["sarsa", "double_q_learning"])
    np.testing.assert_allclose(sarsa, double_q_learning, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_with_network_noise_each_environment_keeps_its_own_carry():
    """The scale of the noise is 0, so exploring selects the greedy action."""
    ours, state = make_updater("q_learning", epsilon=0.0, head={"noisy": True})
    params = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf * ("noise" not in jax.tree_util.keystr(path)),
        state.params,
    )
    rng = np.random.default_rng(3)
    number = 20
    obs = rng.normal(size=(number, 2)).astype("f4")
    _, process = ours.policy.initial(number)
    carry = rng.normal(size=(number, SIZE)).astype("f4"), process
    first = rng.random(number) < 0.2
    noise = ours.policy.draw(jax.random.key(4), number)
    decisions, carries = zip(
        *(
            act(params, obs, carry, first, noise)
            for act in (ours.policy.explore, ours.policy.exploit)
        ),
        strict=True,
    )
    actions = [decision.action for decision in decisions]
    np.testing.assert_array_equal(*actions)
    np.testing.assert_allclose(carries[0][0], carries[1][0], rtol=1e-5)
    assert len(np.unique(actions[0])) > 1


def test_burn_in_rows_are_not_learned_and_refresh_the_carry():
    rows, (ours, state) = steps(), make_updater("q_learning")
    rows = rows._replace(first=np.zeros_like(rows.first))
    burn_in = 3

    @jax.jit
    def gradient(reward, obs):
        changed = rows._replace(reward=reward, obs=obs)
        estimates = ours.estimate(state, changed, jax.random.key(0))
        extras = {**rows.extras, "next_carry": estimates.carry}
        is_learning = jnp.arange(STEPS)[:, None] >= burn_in
        weight = jnp.broadcast_to(is_learning, reward.shape).astype(jnp.float32)
        traced = n_step(gamma=GAMMA).trace(changed._replace(extras=extras), estimates)
        after, _ = ours.update(state, traced, weight, CLOCK, jax.random.key(2))
        return jax.tree.leaves(after.params)

    def same(one, other):
        return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))

    expected = gradient(rows.reward, rows.obs)
    earlier, later, obs = rows.reward.copy(), rows.reward.copy(), rows.obs.copy()
    earlier[burn_in - 1] += 1
    later[burn_in] += 1
    obs[burn_in - 1] += 1
    assert same(gradient(earlier, rows.obs), expected)
    assert not same(gradient(later, rows.obs), expected)
    assert not same(gradient(rows.reward, obs), expected)


@pytest.mark.slow
@pytest.mark.parametrize("burn_in", [3, 0])
def test_no_gradient_passes_through_burn_in(burn_in):
    """The gradient is that of the learning rows, with their first carry as constant."""
    rows, (ours, state) = steps(), make_updater("q_learning", loss="mse")
    rows = rows._replace(discount=np.zeros_like(rows.discount))  # the target is R
    network = recurrent_network("q", functools.partial(action_values_head, ACTIONS))
    weight = np.ones((STEPS, BATCH), "f4")
    weight[:burn_in] = 0

    @jax.jit
    def update(state):
        estimates = ours.estimate(state, rows, jax.random.key(0))
        extras = {**rows.extras, "next_carry": estimates.carry}
        traced = n_step(gamma=GAMMA).trace(rows._replace(extras=extras), estimates)
        after, report = ours.update(state, traced, weight, CLOCK, jax.random.key(2))
        change = jax.tree.map(jnp.subtract, state.params, after.params)
        return change, report.priority, report.metrics["td_error"]

    @functools.partial(jax.jit, static_argnums=1)
    def errors(params, through):
        begin = rows.extras["carry"][0]
        early, late = (
            jax.tree.map(lambda leaf, part=part: leaf[part], (rows.obs, rows.first))
            for part in (slice(burn_in), slice(burn_in, None))
        )
        front, carries = network.apply(params, None, early[0], begin, early[1])
        carry = carries[-1] if burn_in else begin
        carry = carry if through else jax.lax.stop_gradient(carry)
        back, _ = network.apply(params, None, late[0], carry, late[1])
        q_values = jnp.concatenate([front, back])
        taken = jnp.take_along_axis(q_values, rows.action[..., None], axis=-1)[..., 0]
        return rows.reward - taken

    def gradient(through):
        def loss(params):
            return jnp.mean(errors(params, through)[burn_in:] ** 2)

        return jax.tree.leaves(jax.grad(loss)(state.params))

    change, priority, td_error = update(state)
    stopped, flowing = gradient(False), gradient(True)
    for actual, expected in zip(jax.tree.leaves(change), stopped, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-6)
    expected = np.abs(errors(state.params, False))[burn_in:]
    np.testing.assert_allclose(priority[burn_in:], expected, rtol=1e-4, atol=1e-5)
    assert td_error == pytest.approx(expected.mean(), rel=1e-4)
    distance = max(np.abs(a - b).max() for a, b in zip(stopped, flowing, strict=True))
    assert (distance > 1e-3) == (burn_in > 0)


@pytest.mark.parametrize("updater", [{"name": "q_learning", "q": "one"}, "simple_td"])
def test_critics_without_a_carry_refuse_recurrence(updater):
    network = {"name": "linear", "memory": "gru"}
    data = {"environment": "CartPole-v1", "network": network, "updater": updater}
    with pytest.raises(RlcliError, match="recurrent network is not supported"):
        build(recipe.load_recipe(data))
