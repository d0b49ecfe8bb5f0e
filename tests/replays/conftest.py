"""What the tests of replays share: a random stream of steps, and a life on it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlcli.types import Transition

# Compiling is what these tests spend their time on.
QUICKLY = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


@pytest.fixture(scope="session")
def stream():
    """`(seed, unrolls, unroll, num_envs, end) -> steps [unrolls, unroll, num_envs]`.

    The action is the number of the step: time · num_envs + environment. Observations
    are random, and follow each other within an episode only.
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
    """`(replay, steps, see, report) -> what there was after every unroll`, stacked.

    The replay is given an unroll and asked for a sample, again and again. `see(state)`
    is looked at after the unroll was added, and after the sample was reweighed;
    `report(steps)` is what an updater reports.
    """

    def live(replay, steps, see=lambda state: (), report=None):
        def one(state, now):
            count, unroll, noise = now
            state = replay.add(state, unroll, count)
            added = see(state)
            drawn, weight, index = replay.sample(state, count + 1, noise)
            priority = report(drawn) if report else jnp.ones(weight.shape[1])
            state = replay.reweigh(state, index, priority)
            return state, (drawn, weight, index, added, see(state))

        @functools.partial(jax.jit, compiler_options=QUICKLY)
        def life(steps):
            count = jnp.arange(len(steps.reward))
            keys = jax.random.split(jax.random.key(0), len(count))
            state = replay.init(jax.tree.map(lambda leaf: leaf[0], steps))
            inputs = (count, steps, jax.vmap(replay.draw)(keys))
            return jax.lax.scan(one, state, inputs)[1]

        seen = life(steps)
        return jax.tree.map(np.asarray, seen)

    return live


@pytest.fixture(scope="session")
def original():
    """`(steps, numbers) -> these steps`, of the stream, by their numbers."""

    def look_up(steps, numbers):
        flat = jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[3:])), steps)
        return jax.tree.map(lambda leaf: leaf[numbers], flat)

    return look_up
