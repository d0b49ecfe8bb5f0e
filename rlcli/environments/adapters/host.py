"""Environments on the host: what JAX cannot trace, played for all seeds in one vector.

The contract of an `Environment` whose `pure` is false. Every array has the leading
axes `[S, B]`: S seeds, B environments of each. All are NumPy's, but for actions, which
are as the loop has them: JAX's.

    reset(seeds[S] uint32) -> state, obs              begins episode 0 everywhere
    step(state, action, noise=(), cut=False) -> state, TimeStep
                                                      as `TimeStep` says, info {}
    save(state) -> arrays                             for a checkpoint
    restore(arrays) -> state, sentence                "" where it is exact
    close(state)                                      the end
    render(state, index) -> [H, W, 3] uint8           index: environment + B × seed
    render_final(state, index)                        before the episode that began last

`state` is a handle that changes in place: `step` returns the one it was given. Arrays
that were handed out are never written to again, for JAX may still read them. `draw`
gives `()`, except for `hosted` environments.

A host environment resumes exactly without being pickled: *every* episode is seeded
from (seed, environment, episode), so a checkpoint needs only these and the actions of
the episode so far. They are replayed, and what comes out is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import jax
import numpy as np

from rlcli.environments.adapters.conversion import HostArray, exposed
from rlcli.environments.adapters.host_vector import Copies, Foreign, seed_of
from rlcli.environments.adapters.pools import Pool, Sequential
from rlcli.types import ArrayTree, Environment, Key, TimeStep

__all__ = ["Foreign", "hosted", "pooled", "seed_of", "vector"]


def no_noise(key: Key) -> tuple[()]:
    """The `draw` of a host environment: its randomness is its own."""
    del key
    return ()


def vector(
    foreign: Foreign, make: Callable[[], gymnasium.Env], num_envs: int, seeds: int
) -> Environment:
    """S×B copies of what `make` makes, stepped one after the other in this process.

    A copy ends its episodes itself (time limits are `make`'s), begins the next one at
    once, and may take `foreign.timeout` seconds for a step or a reset. The spaces are
    `exposed`; actions beyond a Box are clipped to it.
    """
    example = make()
    example.close()
    spaces = example.observation_space, example.action_space

    def pool(count: int) -> Sequential:
        return Sequential(make, count, foreign.timeout)

    return pooled(foreign, spaces, pool, num_envs, seeds)


def pooled(
    foreign: Foreign,
    spaces: tuple[gymnasium.Space, gymnasium.Space],
    make: Callable[[int], Pool],
    num_envs: int,
    seeds: int,
) -> Environment:
    """S×B environments of the pool that `make(S · B)` makes, which steps all at once.

    Environment b of seed s is number b + B × s of the pool. `spaces` are one's own, of
    observations and of actions; parts see them `exposed`.
    """
    observation = exposed(spaces[0], f"{foreign.name}: its observation space")
    action = exposed(spaces[1], f"{foreign.name}: its action space")

    def fresh(numbers: HostArray) -> Copies:
        if np.shape(numbers) != (seeds,):
            raise ValueError(f"expected {seeds} seeds, got shape {np.shape(numbers)}")
        pool = make(seeds * num_envs)
        return Copies(foreign, spaces[1], pool, made, np.array(numbers, np.uint32))

    def reset(numbers: HostArray) -> tuple[Copies, ArrayTree]:
        state = fresh(numbers)
        return state, state.begin()

    def step(
        state: Copies, action: ArrayTree, noise: ArrayTree = (), cut: bool = False
    ) -> tuple[Copies, TimeStep]:
        del noise
        return state, state.step(action, cut)

    def restore(saved: Mapping[str, HostArray]) -> tuple[Copies, str]:
        if saved["episode"].shape != (seeds, num_envs):
            raise ValueError(
                f"expected {seeds} seeds of {num_envs} environments, "
                f"got {saved['episode'].shape}"
            )
        state = fresh(saved["seeds"])
        return state, state.restore(saved)

    made = Environment(
        reset=reset,
        step=step,
        observation=observation,
        action=action,
        render=Copies.render,
        render_final=Copies.render_final,
        num_envs=num_envs,
        pure=False,
        draw=no_noise,
        save=Copies.save,
        restore=restore,
        close=Copies.close,
    )
    return made


def hosted(
    env: Environment, seeds: int, key: Callable[[Any], Key] = jax.random.key
) -> Environment:
    """A pure environment behind the host contract: the same numbers, step by step.

    What `key` makes of a seed resets it, and `step` is given the noise of the pure
    one's `draw`, `[S, ...]`. A lone seed is not vmapped, as in the compiled loop.
    """
    if not env.pure:
        return env  # it is there already
    lone = seeds == 1
    begin = jax.jit(env.reset if lone else jax.vmap(env.reset))
    go = jax.jit(env.step if lone else jax.vmap(env.step, (0, 0, 0, None)))

    def squeeze(tree: ArrayTree) -> ArrayTree:
        return jax.tree.map(lambda x: x[0], tree) if lone else tree

    def expand(x: jax.Array) -> np.ndarray:
        return np.asarray(x)[None] if lone else np.asarray(x)

    def reset(numbers: np.ndarray) -> tuple[ArrayTree, ArrayTree]:
        state, obs = begin(squeeze(jax.vmap(key)(np.asarray(numbers, np.uint32))))
        return state, jax.tree.map(expand, obs)

    def step(
        state: ArrayTree,
        action: np.ndarray,
        noise: ArrayTree = (),
        cut: bool = False,
    ) -> tuple[ArrayTree, TimeStep]:
        state, timestep = go(state, squeeze(action), squeeze(noise), cut)
        return state, jax.tree.map(expand, timestep)

    def on_host(draw: Callable) -> Callable:
        """A function of (state, index) that draws one environment of one seed."""

        def picture(state: ArrayTree, index: int = 0) -> Any:
            seed, environment = divmod(index, env.num_envs)
            one = state if lone else jax.tree.map(lambda x: x[seed], state)
            return draw(jax.device_get(one), environment)

        return picture

    return env._replace(
        reset=reset,
        step=step,
        render=on_host(env.render),
        render_final=on_host(env.render_final),
        pure=False,
        save=jax.device_get,
        restore=lambda saved: (jax.device_put(saved), ""),
        close=lambda state: None,
    )
