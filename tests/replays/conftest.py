"""Fixtures for tests of replays: a random stream of steps, and a replay run on it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilation import FAST_COMPILATION

from rlcli.types import Transition


@pytest.fixture(scope="session")
def stream():
    """`(seed, unrolls, unroll, num_envs, end) -> steps [unrolls, unroll, num_envs]`.

    The action is the step number: time · num_envs + environment. Observations are
    random; within an episode, `next_obs` equals the next step's `obs`.
    """

    def make(seed, unrolls, unroll, num_envs, end=0.2):
        rng = np.random.default_rng(seed)
        shape = (unrolls * unroll, num_envs)
        last = rng.random(shape) < end
        first = np.concatenate([np.ones((1, num_envs), bool), last[:-1]])
        obs = rng.random((shape[0] + 1, num_envs, 2)).astype("f4")
        final = rng.random((*shape, 2)).astype("f4")
        steps = Transition(
            obs=obs[:-1],
            action=np.arange(np.prod(shape), dtype="i4").reshape(shape),
            reward=rng.normal(size=shape).astype("f4"),
            discount=1.0 - (last & (rng.random(shape) < 0.5)).astype("f4"),
            next_obs=np.where(last[..., None], final, obs[1:]),
            first=first,
            last=last,
            extras={"log_prob": rng.normal(size=shape).astype("f4")},
        )
        whole = (unrolls, unroll)
        return jax.tree.map(lambda x: x.reshape(whole + x.shape[1:]), steps)

    return make


@pytest.fixture(scope="session")
def run_replay():
    """`(replay, steps, inspect, report) -> samples and states`, stacked over unrolls.

    Repeatedly adds an unroll, samples and reweighs. `inspect(state)` is evaluated after
    adding and after reweighing; `report(steps)` returns the updater's priorities.
    """

    def run(replay, steps, inspect=lambda state: (), report=None):
        def scan_step(state, inputs):
            count, unroll, noise = inputs
            state = replay.add(state, unroll, count)
            state_after_add = inspect(state)
            batch, weight, index = replay.sample(state, count + 1, noise)
            priority = report(batch) if report else jnp.ones(weight.shape[1])
            state = replay.reweigh(state, index, priority)
            return state, (batch, weight, index, state_after_add, inspect(state))

        @functools.partial(jax.jit, compiler_options=FAST_COMPILATION)
        def run_compiled(steps):
            count = jnp.arange(len(steps.reward))
            keys = jax.random.split(jax.random.key(0), len(count))
            state = replay.init(jax.tree.map(lambda leaf: leaf[0], steps))
            inputs = (count, steps, jax.vmap(replay.draw)(keys))
            return jax.lax.scan(scan_step, state, inputs)[1]

        return jax.tree.map(np.asarray, run_compiled(steps))

    return run


@pytest.fixture(scope="session")
def original():
    """`(steps, numbers) -> steps`: the steps of the stream with these numbers."""

    def look_up(steps, numbers):
        flat = jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[3:])), steps)
        return jax.tree.map(lambda leaf: leaf[numbers], flat)

    return look_up
