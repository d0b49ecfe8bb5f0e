"""Temporal differences of networks that remember, beside steps taken one at a time."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlcli import recipe, registry
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.networks import memory
from rlcli.networks.heads import action_values_head
from rlcli.networks.torsos import mlp
from rlcli.policies.discrete import epsilon_greedy
from rlcli.tracers.n_step import n_step
from rlcli.types import Clock, Transition
from rlcli.updaters import Spaces

SHOWN = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
ACTIONS, SIZE, STEPS, BATCH, N, GAMMA, EPSILON = 3, 4, 9, 5, 2, 0.9, 0.2
CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))


def recalling(name, head, action=None, copies=None):
    made = memory.gru(size=SIZE), head(), SHOWN, copies
    return memory.separate_recurrent_network(name, mlp(layers=[5]), *made)


def steps(seed=0):
    """Raw steps of several episodes, and the memory that the first was taken with."""
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


def make_updater(name, **options):
    """An updater, and a learner whose target parameters are not its parameters."""

    def policies(values, space):
        return epsilon_greedy(values, space, epsilon=EPSILON)

    spaces = Spaces(SHOWN, gymnasium.spaces.Discrete(ACTIONS))
    factory = registry.find("updater", name).factory
    target = {"every": 100}
    ours = factory(
        spaces, recalling, policies, optax.sgd(1.0), target=target, **options
    )
    begun = ours.init(jax.random.key(0))
    return ours, begun._replace(target=ours.init(jax.random.key(1)).params)


@pytest.fixture(scope="module")
def one_step():
    """`(params, obs[2], carry[4], first) -> q[3], carry[4]`, compiled once."""
    network = recalling("q", functools.partial(action_values_head, ACTIONS))

    @jax.jit
    def step(params, obs, carry, first):
        found, after = network.apply(
            params, None, obs[None, None], carry[None], jnp.reshape(first, (1, 1))
        )
        return found[0, 0], after[0, 0]

    return step


def one_at_a_time(step, rows, params, b):
    """q(s, ·) of each step of an environment, and q(s′, ·) with what was seen then."""
    carry, here, there = rows.extras["carry"][0, b], [], []
    for t in range(STEPS):
        q, carry = step(params, rows.obs[t, b], carry, rows.first[t, b])
        here.append(q)
        there.append(step(params, rows.next_obs[t, b], carry, False)[0])
    return np.array(here), np.array(there)


def expected_bootstrap(name, online, target):
    """What the rule bootstraps from: numbers of one next observation."""
    if name == "double_q_learning":
        return target[online.argmax()]
    greedy = EPSILON / ACTIONS + (1 - EPSILON) * (target == target.max())
    return greedy @ target


@pytest.mark.parametrize(
    "name",
    ["double_q_learning", pytest.param("expected_sarsa", marks=pytest.mark.slow)],
)
def test_errors_are_those_of_networks_that_are_stepped_one_at_a_time(name, one_step):
    rows, (ours, state) = steps(), make_updater(name)
    assert ours.requires == ("carry",)

    @jax.jit
    def learnt(state):
        estimates = ours.estimate(state, rows)
        seen = {**rows.extras, "next_carry": estimates.carry}
        traced = n_step(n=N, gamma=GAMMA).trace(rows._replace(extras=seen), estimates)
        weight = jnp.ones(traced.reward.shape)
        return estimates, ours.update(state, traced, weight, CLOCK, jax.random.key(2))

    estimates, (_, report) = learnt(state)
    assert report.priority.shape == (STEPS - N + 1, BATCH)
    for b in range(BATCH):
        here, there = one_at_a_time(one_step, rows, state.params, b)
        _, target = one_at_a_time(one_step, rows, state.target, b)
        taken = here[np.arange(STEPS), rows.action[:, b]]
        np.testing.assert_allclose(estimates.q_tm1[:, b], taken, rtol=1e-4, atol=1e-6)
        best = there.max(-1)
        if name == "double_q_learning":
            np.testing.assert_allclose(estimates.v_t[:, b], best, rtol=1e-4, atol=1e-6)
            best = here.max(-1)
            np.testing.assert_allclose(
                estimates.v_tm1[:, b], best, rtol=1e-4, atol=1e-6
            )
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


def test_burn_in_is_not_learnt_and_refreshes_the_memory():
    rows, (ours, state) = steps(), make_updater("q_learning")
    rows = rows._replace(first=np.zeros_like(rows.first))
    burn_in = 3

    @jax.jit
    def gradient(reward, obs):
        changed = rows._replace(reward=reward, obs=obs)
        estimates = ours.estimate(state, changed)
        seen = {**rows.extras, "next_carry": estimates.carry}
        learnt = jnp.arange(STEPS)[:, None] >= burn_in
        weight = jnp.broadcast_to(learnt, reward.shape).astype(jnp.float32)
        traced = n_step(gamma=GAMMA).trace(changed._replace(extras=seen), estimates)
        after, _ = ours.update(state, traced, weight, CLOCK, jax.random.key(2))
        return jax.tree.leaves(after.params)

    def same(one, other):
        return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))

    begun = gradient(rows.reward, rows.obs)
    earlier, later, seen = rows.reward.copy(), rows.reward.copy(), rows.obs.copy()
    earlier[burn_in - 1] += 1
    later[burn_in] += 1
    seen[burn_in - 1] += 1
    assert same(gradient(earlier, rows.obs), begun)
    assert not same(gradient(later, rows.obs), begun)
    assert not same(gradient(rows.reward, seen), begun)


@pytest.mark.parametrize("burn_in", [3, pytest.param(0, marks=pytest.mark.slow)])
def test_no_gradient_goes_through_a_burn_in(burn_in):
    """It is that of the later steps alone, with the memory they begin with a number."""
    rows, (ours, state) = steps(), make_updater("q_learning", loss="mse")
    rows = rows._replace(discount=np.zeros_like(rows.discount))  # the target is R
    network = recalling("q", functools.partial(action_values_head, ACTIONS))
    weight = np.ones((STEPS, BATCH), "f4")
    weight[:burn_in] = 0

    @jax.jit
    def moved(state):
        estimates = ours.estimate(state, rows)
        seen = {**rows.extras, "next_carry": estimates.carry}
        traced = n_step(gamma=GAMMA).trace(rows._replace(extras=seen), estimates)
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
        found, _ = network.apply(params, None, late[0], carry, late[1])
        every = jnp.concatenate([front, found])
        taken = jnp.take_along_axis(every, rows.action[..., None], axis=-1)[..., 0]
        return rows.reward - taken

    def gradient(through):
        def loss(params):
            return jnp.mean(errors(params, through)[burn_in:] ** 2)

        return jax.tree.leaves(jax.grad(loss)(state.params))

    found, priority, td_error = moved(state)
    stopped, flowing = gradient(False), gradient(True)
    for each, expected in zip(jax.tree.leaves(found), stopped, strict=True):
        np.testing.assert_allclose(each, expected, rtol=1e-3, atol=1e-6)
    expected = np.abs(errors(state.params, False))[burn_in:]
    np.testing.assert_allclose(priority[burn_in:], expected, rtol=1e-4, atol=1e-5)
    assert td_error == pytest.approx(expected.mean(), rel=1e-4)
    apart = max(np.abs(a - b).max() for a, b in zip(stopped, flowing, strict=True))
    assert (apart > 1e-3) == (burn_in > 0)


@pytest.mark.parametrize("updater", [{"name": "q_learning", "q": "one"}, "simple_td"])
def test_a_critic_that_cannot_remember_says_so(updater):
    network = {"name": "linear", "memory": "gru"}
    data = {"environment": "CartPole-v1", "network": network, "updater": updater}
    with pytest.raises(RlcliError, match="with a memory"):
        build(recipe.load_recipe(data))
