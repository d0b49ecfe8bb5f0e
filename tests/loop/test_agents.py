"""Agents: the times and numbers of updates, and their rows."""

from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import quick_first

from rlcli.loop.agents import online_agent, replay_agent
from rlcli.replays.uniform import uniform
from rlcli.tracers.multi_step import lambda_return, n_step
from rlcli.types import (
    Agent,
    Clock,
    Estimates,
    Policy,
    Replay,
    ReplayTraits,
    Report,
    Tracer,
    Transition,
    Updater,
    UpdaterTraits,
)

ENVIRONMENTS = 2


def unused(*_):
    raise NotImplementedError


NO_POLICY = Policy(
    lambda batch: ((), ()), lambda key, batch: (), unused, unused, unused
)


class RecordedCalls(NamedTuple):
    """The arguments of the last update of an updater that does not learn."""

    calls: jax.Array
    updates: jax.Array  # sum of `clock.updates`
    reward: jax.Array
    weight: jax.Array
    bits: jax.Array  # of the key


def recording_updater(shape: tuple[int, int], needs: tuple[str, ...] = ()) -> Updater:
    """An updater that only records its arguments, with rows of the given shape."""
    zero = jnp.int32(0)

    def update(state, batch, weight, clock, key):
        bits = jax.random.bits(key, ())
        recorded = RecordedCalls(
            state.calls + 1, state.updates + clock.updates, batch.reward, weight, bits
        )
        priority = jnp.sum(batch.reward, axis=0)
        return recorded, Report(priority, {"calls": recorded.calls})

    def estimate(state, steps, key):
        zeros = jnp.zeros_like(steps.reward)
        return Estimates(zeros, zeros, zeros, zeros)

    return Updater(
        init=lambda key: RecordedCalls(
            zero, zero, jnp.zeros(shape), jnp.zeros(shape), jnp.uint32(0)
        ),
        acting=lambda state: state.calls,
        policy=NO_POLICY,
        update=update,
        estimate=estimate,
        failed_at=lambda state: jnp.int32(-1),
        traits=UpdaterTraits(requires=needs),
    )


def unroll(start: int, length: int) -> Transition:
    """Steps whose reward is their number, equal in both environments."""
    numbers = np.arange(start, start + length, dtype=np.float32)
    reward = np.broadcast_to(numbers[:, None], (length, ENVIRONMENTS))
    flag = np.zeros_like(reward, bool)
    return Transition(
        obs=reward,
        action=reward.astype(np.int32),
        reward=reward,
        discount=np.ones_like(reward),
        next_obs=reward + 1,
        first=flag,
        last=flag,
        extras={},
    )


def learning_steps(agent: Agent, iterations: int, length: int):
    """Yields state and metrics after every iteration."""
    key = jax.random.key(0)

    @jax.jit
    def learn(state, steps, iteration):
        clock = Clock.zero()._replace(iteration=iteration)
        noise = agent.draw(jax.random.fold_in(key, iteration))
        return agent.learn(state, steps, clock, noise)

    state = jax.jit(agent.init)(key, unroll(0, length))
    for iteration in range(iterations):
        steps = unroll(iteration * length, length)
        state, metrics = learn(state, steps, np.int32(iteration))
        yield jax.device_get((state, metrics))


def replay_agent_of(updates: Fraction, start: int) -> Agent:
    replay = uniform(1, 1, ENVIRONMENTS, capacity=64, batch_size=5)
    return replay_agent(
        recording_updater((1, 5)), n_step(n=1), replay, updates=updates, start=start
    )


@pytest.mark.parametrize(
    ("updates", "start"),
    quick_first(
        [
            (Fraction(1), 3),
            (Fraction(1, 3), 0),
            (Fraction(5, 2), 1),
            (Fraction(1), 0),
            (Fraction(4), 2),
        ],
        quick=3,
    ),
)
def test_updates_begin_after_the_start_with_the_frequency_of_the_recipe(updates, start):
    agent = replay_agent_of(updates, start)
    for number, (state, _) in enumerate(learning_steps(agent, 12, 1), 1):
        expected = int(updates * max(0, number - start))  # rounded down
        assert int(state.learner.calls) == expected
        assert agent.count_updates(number) == expected
        # The clock has the number of each update: 0, 1, 2 …
        assert int(state.learner.updates) == expected * (expected - 1) // 2


def test_the_number_of_updates_is_an_exact_int_for_ints_and_an_array_for_arrays():
    agent = replay_agent_of(Fraction(1, 3), 2)
    assert agent.count_updates(3 * 10**12 + 2) == 10**12
    found = jax.jit(agent.count_updates)(jnp.arange(9))
    assert found.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 2]


def test_metrics_are_those_of_the_last_update_of_the_iteration():
    metrics = [
        int(said["calls"])
        for _, said in learning_steps(replay_agent_of(Fraction(3), 1), 4, 1)
    ]
    assert metrics == [0, 3, 6, 9]  # zeros without an update


def test_every_update_has_its_own_key_and_sample():
    states = [
        state.learner
        for state, _ in learning_steps(replay_agent_of(Fraction(1), 0), 12, 1)
    ]
    assert len({int(state.bits) for state in states}) == 12
    samples, keys = jax.jit(replay_agent_of(Fraction(2), 0).draw)(jax.random.key(1))
    samples, data = jax.device_get((samples, jax.random.key_data(keys)))
    assert not np.any(samples[0] == samples[1])
    assert len({each.tobytes() for each in data}) == 2


def test_updates_use_only_steps_in_the_replay():
    agent = replay_agent_of(Fraction(1), 0)
    for number, (state, _) in enumerate(learning_steps(agent, 40, 1)):
        oldest = max(0, number + 1 - 64 // ENVIRONMENTS)
        rewards = np.asarray(state.learner.reward)
        assert np.all((oldest <= rewards) & (rewards <= number))


def test_a_replay_receives_the_priority_of_each_row():
    def reweigh(state, index, priority):
        return {"index": index, "priority": priority, "at": state["at"]}

    def sample(state, count, noise):
        steps = jax.tree.map(lambda leaf: jnp.zeros((2, 3), leaf.dtype), unroll(0, 1))
        steps = steps._replace(reward=jnp.full((2, 3), 7.0), discount=jnp.ones((2, 3)))
        return steps, jnp.array([[0.5] * 3, [0.25] * 3]), jnp.arange(3) + noise

    replay = Replay(
        init=lambda steps: {
            "index": jnp.zeros(3, jnp.int32),
            "priority": jnp.zeros(3),
            "at": jnp.int32(-1),
        },
        draw=lambda key: jnp.int32(10),
        add=lambda state, steps, count: {**state, "at": count},
        sample=sample,
        reweigh=reweigh,
    )
    tracer = n_step(n=2, gamma=1.0)  # one row per two steps
    agent = replay_agent(
        recording_updater((1, 3)), tracer, replay, updates=Fraction(1), start=0
    )
    *_, (state, _) = learning_steps(agent, 4, 1)
    assert state.replay["index"].tolist() == [10, 11, 12]
    assert state.replay["priority"].tolist() == [14, 14, 14]
    assert int(state.replay["at"]) == 3
    np.testing.assert_array_equal(state.learner.weight, [[0.5] * 3])


def test_an_online_agent_learns_once_from_every_row_of_its_window():
    n, length = 3, 4
    agent = online_agent(
        recording_updater((length, ENVIRONMENTS)), n_step(n=n, gamma=1.0)
    )
    rows = []
    for state, _ in learning_steps(agent, 3, length):
        counts = np.asarray(state.learner.weight[:, 0]) > 0
        rows += np.asarray(state.learner.reward[:, 0])[counts].tolist()
        assert state.tail.reward.shape == (n - 1, ENVIRONMENTS)
    steps = 3 * length
    expected = [sum(range(k, k + n)) for k in range(steps - n + 1)]
    assert rows == expected


def test_a_window_longer_than_the_unroll_waits_until_it_is_full():
    n, length = 6, 2
    agent = online_agent(
        recording_updater((length, ENVIRONMENTS)), n_step(n=n, gamma=1.0)
    )
    rows = []
    for state, _ in learning_steps(agent, 6, length):
        counts = np.asarray(state.learner.weight[:, 0]) > 0
        rows += np.asarray(state.learner.reward[:, 0])[counts].tolist()
    assert rows == [sum(range(k, k + n)) for k in range(6 * length - n + 1)]


def test_a_tracer_that_bootstraps_gives_a_row_for_every_step_of_the_unroll():
    agent = online_agent(
        recording_updater((4, ENVIRONMENTS)), lambda_return(gamma=0.9, lambda_=0.5)
    )
    for state, _ in learning_steps(agent, 2, 4):
        assert np.all(state.learner.weight == 1)
        assert state.tail.reward.shape == (0, ENVIRONMENTS)


def test_an_online_agent_updates_once_an_iteration_and_counts_them():
    agent = online_agent(recording_updater((1, ENVIRONMENTS)), n_step(n=1))
    *_, (state, metrics) = learning_steps(agent, 5, 1)
    assert (
        int(state.learner.calls) == int(metrics["calls"]) == agent.count_updates(5) == 5
    )
    assert int(state.learner.updates) == 0 + 1 + 2 + 3 + 4


def test_estimates_are_sampled_with_none_of_the_keys_of_the_update():
    """An update may split its key, or fold in 0, 1, …, which is the same in JAX."""
    keys = {}
    updater = recording_updater((1, ENVIRONMENTS))

    def estimate(state, steps, key):
        keys["estimate"] = key
        return updater.estimate(state, steps, key)

    def update(state, batch, weight, clock, key):
        keys["update"] = key
        return updater.update(state, batch, weight, clock, key)

    agent = online_agent(updater._replace(estimate=estimate, update=update), n_step())
    key, steps = jax.random.key(3), unroll(0, 1)
    agent.learn(agent.init(key, steps), steps, Clock.zero(), key)
    of_update = jax.random.key_data(keys["update"])
    children = jax.random.key_data(jax.random.split(keys["update"], 1_000))
    own = jax.random.key_data(keys["estimate"])
    assert not np.any(np.all(np.vstack([of_update, children]) == own, axis=-1))


def test_an_agent_requires_the_extras_of_its_updater_and_tracer():
    updater = recording_updater((1, ENVIRONMENTS), needs=("log_prob", "carry"))
    tracer = n_step(n=1)._replace(requires=("log_prob", "value"))
    replay = uniform(1, 1, ENVIRONMENTS, capacity=64, batch_size=5)
    wanted = ("carry", "log_prob", "value")
    assert online_agent(updater, tracer).traits.requires == wanted
    agent = replay_agent(updater, tracer, replay, updates=Fraction(1), start=0)
    assert agent.traits.requires == wanted


def test_acting_and_failed_at_are_those_of_the_updater():
    agent = online_agent(recording_updater((1, ENVIRONMENTS)), n_step(n=1))
    *_, (state, _) = learning_steps(agent, 3, 1)
    assert int(agent.acting(state)) == 3
    assert int(agent.failed_at(state)) == -1
    assert agent.policy is NO_POLICY


def sparse_replay(window: int) -> Replay:
    """A replay of episodes that has an episode only in every third iteration."""

    def sample(state, count, noise):
        steps = jax.tree.map(lambda leaf: jnp.zeros((window, 1), leaf.dtype), CUT)
        reward = jnp.full((window, 1), count, jnp.float32)
        weight = jnp.full((window, 1), (count % 3 == 0).astype(jnp.float32))
        return steps._replace(reward=reward), weight, state + 1

    return Replay(
        init=lambda steps: jnp.int32(0),
        draw=lambda key: jnp.int32(0),
        add=lambda state, steps, count: state,
        sample=sample,
        reweigh=lambda state, index, priority: index,
        traits=ReplayTraits(episodes=True),
    )


CUT = jax.tree.map(lambda leaf: leaf[:, :1], unroll(0, 1))


@pytest.mark.parametrize("updates", [Fraction(1), Fraction(2)])
def test_a_sample_with_zero_weights_makes_no_update(updates):
    tracer = n_step(n=1)._replace(window=None)
    agent = replay_agent(
        recording_updater((4, 1)), tracer, sparse_replay(4), updates=updates, start=0
    )
    for number, (state, metrics) in enumerate(learning_steps(agent, 8, 1), 1):
        num_updates = number // 3 * int(updates)
        assert int(state.learner.calls) == num_updates
        # The metrics are those of the last update, in any earlier iteration.
        assert int(metrics["calls"]) == num_updates
        # The replay is reweighed after every sample, and each counts as an update.
        assert int(state.replay) == number * updates == agent.count_updates(number)
        if num_updates:
            assert np.all(state.learner.reward == number // 3 * 3)


def test_rows_of_wrong_shape_are_refused_while_the_program_is_traced():
    agent = online_agent(recording_updater((4, ENVIRONMENTS)), lambda_return())
    steps, key = unroll(0, 4), jax.random.key(0)
    for wrong in (
        steps._replace(reward=steps.reward[:, 0]),
        steps._replace(discount=steps.discount[:3]),
        steps._replace(next_obs=steps.next_obs[:, :1]),
    ):
        with pytest.raises(AssertionError, match=r"shape|rank"):
            jax.eval_shape(
                agent.learn, agent.init(key, wrong), wrong, Clock.zero(), key
            )


def test_rows_of_wrong_shape_from_a_tracer_are_refused():
    def forget_a_row(steps, estimates):
        del estimates
        return steps._replace(reward=steps.reward[1:])

    agent = online_agent(
        recording_updater((4, ENVIRONMENTS)), Tracer(1, forget_a_row, gamma=0.9)
    )
    state = agent.init(jax.random.key(0), unroll(0, 4))
    with pytest.raises(AssertionError, match="shape"):
        jax.eval_shape(
            agent.learn, state, unroll(0, 4), Clock.zero(), jax.random.key(0)
        )
