"""Environments on the host: what JAX cannot trace, played for all seeds in one vector.

The contract of an `Environment` whose `pure` is false. Every array is NumPy's and has
the leading axes `[S, B]`: S seeds, B environments of each.

    reset(seeds[S] uint32) -> state, obs              begins episode 0 everywhere
    step(state, action, noise=(), cut=False) -> state, TimeStep
                                                      as `TimeStep` says, info {}
    save(state) -> arrays                             for a checkpoint
    restore(arrays) -> state, sentence                "" where it is exact
    close(state)                                      the end
    render(state, index) -> [H, W, 3] uint8           index: environment + B × seed

`state` is a handle that changes in place: `step` returns the one it was given. Arrays
that were handed out are never written to again, for JAX may still read them. `draw`
gives `()`, except for `hosted` environments.

A host environment resumes exactly without being pickled: *every* episode is seeded
from (seed, environment, episode), so a checkpoint needs only these and the actions of
the episode so far. They are replayed, and what comes out is compared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled

from rlcli.environments.limits import Limit, OverdueError
from rlcli.errors import RlcliError
from rlcli.spaces import describe, dtype
from rlcli.types import ArrayTree, Environment, Key, TimeStep

HostArray = Any  # a NumPy array, where the records of `types` say a JAX one
EXTRA = 'pip install "rlcli[gymnasium]"'  # brings what Gymnasium needs to draw
NAMED = 3  # how many environments a sentence names before it only counts them


def seed_of(seed: int, environment: int, episode: int) -> int:
    """The seed of one episode: 32 bits that depend on nothing but these three."""
    sequence = np.random.SeedSequence([int(seed), int(environment), int(episode)])
    return int(sequence.generate_state(1)[0])


def no_noise(key: Key) -> tuple[()]:
    """The `draw` of a host environment: its randomness is its own."""
    del key
    return ()


def vector(
    name: str,
    make: Callable[[], gymnasium.Env],
    num_envs: int,
    seeds: int,
    timeout: float | None = None,
) -> Environment:
    """S×B copies of what `make` makes, stepped one after the other in this process.

    `name` is what errors call it. A copy ends its episodes itself (time limits are
    `make`'s), begins the next one at once, and may take `timeout` seconds for a step or
    a reset. The spaces are `exposed`; actions beyond a Box are clipped to it.
    """
    example = make()
    example.close()
    observation = exposed(example.observation_space, f"{name}: its observation space")
    action = exposed(example.action_space, f"{name}: its action space")

    def fresh(numbers: HostArray) -> Copies:
        if np.shape(numbers) != (seeds,):
            raise ValueError(f"expected {seeds} seeds, got shape {np.shape(numbers)}")
        limit = contextlib.nullcontext() if timeout is None else Limit(timeout)
        copies = [
            Copy(name, make(), int(seed), (row, environment), limit)
            for row, seed in enumerate(numbers)
            for environment in range(num_envs)
        ]
        return Copies(copies, np.array(numbers, np.uint32), num_envs)

    def reset(numbers: HostArray) -> tuple[Copies, HostArray]:
        state = fresh(numbers)
        return state, state.begin()

    def step(
        state: Copies, action: HostArray, noise: ArrayTree = (), cut: bool = False
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

    return Environment(
        reset=reset,
        step=step,
        observation=observation,
        action=action,
        render=Copies.render,
        num_envs=num_envs,
        pure=False,
        draw=no_noise,
        save=Copies.save,
        restore=restore,
        close=Copies.close,
    )


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

    def render(state: ArrayTree, index: int) -> np.ndarray:
        seed, environment = divmod(index, env.num_envs)
        one = state if lone else jax.tree.map(lambda x: x[seed], state)
        return env.render(one, environment)

    return env._replace(
        reset=reset,
        step=step,
        render=render,
        pure=False,
        save=jax.device_get,
        restore=lambda saved: (jax.device_put(saved), ""),
        close=lambda state: None,
    )


def exposed(space: gymnasium.Space, whose: str) -> spaces.Box | spaces.Discrete:
    """The space that parts see: choices count from 0, float64 is float32.

    `whose` begins the error for a space that is neither a Box nor a Discrete.
    """
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n), dtype=space.dtype.type)
    if not isinstance(space, spaces.Box):
        raise RlcliError(
            f"{whose} is {describe(space)}, where only Discrete and Box are supported",
            "a wrapper around the environment can flatten it into a Box",
        )
    if space.dtype != np.float64:
        return space
    with np.errstate(over="ignore"):  # bounds beyond float32 are none
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return spaces.Box(low, high, space.shape, np.float32)


class Copies:
    """The state of a `vector`: S×B copies, and `obs` `[S, B, ...]`, where they are."""

    def __init__(self, copies: list[Copy], seeds: np.ndarray, num_envs: int) -> None:
        self.copies = copies
        self.seeds = seeds
        self.grid = len(seeds), num_envs
        env = copies[0].env
        self.action: Any = env.action_space
        self.shape = self.grid + (env.observation_space.shape or ())
        self.dtype = dtype(env.observation_space)
        self.obs = np.empty(self.shape, self.dtype)

    def begin(self) -> np.ndarray:
        """Begins episode 0 of every copy; returns obs `[S, B, ...]`."""
        for copy in self.copies:
            self.obs[copy.place] = copy.begin(0)
        return self.obs

    def step(self, action: HostArray, cut: bool = False) -> TimeStep:
        """One step of every copy, with action `[S, B, ...]`; `cut` truncates all."""
        # Copied, for it is kept: the caller's buffer may be donated.
        played = np.array(action)
        if played.shape != self.grid + self.action.shape:
            raise ValueError(f"expected actions {self.grid}, got {played.shape}")
        native = self._native(played)
        next_obs: HostArray = np.empty(self.shape, self.dtype)
        reward: HostArray = np.zeros(self.grid, np.float32)
        discount: HostArray = np.ones(self.grid, np.float32)
        last: HostArray = np.zeros(self.grid, np.bool_)
        ended = []
        for copy in self.copies:
            place = copy.place
            if copy.lost:
                next_obs[place], over = self.obs[place], True
            else:
                answer = copy.step(native[place], played[place])
                next_obs[place], reward[place], terminated, over = answer
                if terminated:
                    discount[place], over = 0, True
            if over or cut:
                ended.append(copy)
        obs = next_obs.copy() if ended else next_obs
        for copy in ended:
            last[copy.place] = True
            obs[copy.place] = copy.begin(copy.episode + 1)
        self.obs = obs
        return TimeStep(obs, next_obs, reward, discount, last, {})

    def save(self) -> dict[str, np.ndarray]:
        """What brings them back; actions are padded to the longest: `[S, B, L, ...]`.

        L differs from one checkpoint to the next.
        """
        length = np.zeros(self.grid, np.int64)
        episode = np.zeros(self.grid, np.int64)
        longest = max(len(copy.played) for copy in self.copies)
        shape = (*self.grid, longest, *self.action.shape)
        actions = np.zeros(shape, dtype(self.action))
        for copy in self.copies:
            length[copy.place] = len(copy.played)
            episode[copy.place] = copy.episode
            if copy.played:
                actions[copy.place][: len(copy.played)] = copy.played
        return {
            "seeds": self.seeds.copy(),
            "episode": episode,
            "length": length,
            "actions": actions,
            "obs": self.obs.copy(),
        }

    def restore(self, saved: Mapping[str, HostArray]) -> str:
        """Brings them back by replaying; returns a sentence about those it could not.

        A copy that is not where it was is `lost`: its next step ends the episode at the
        saved observation, truncated, with reward 0.
        """
        for copy in self.copies:
            place = copy.place
            played = np.array(saved["actions"][place][: saved["length"][place]])
            self.obs[place] = copy.begin(int(saved["episode"][place]))
            for chosen, kept in zip(self._native(played), played, strict=True):
                self.obs[place], _, terminated, truncated = copy.step(chosen, kept)
                copy.lost = bool(terminated or truncated)
                if copy.lost:
                    break
            was, nan = saved["obs"][place], self.dtype.kind == "f"
            copy.lost |= not np.array_equal(self.obs[place], was, equal_nan=nan)
        self.obs = np.array(saved["obs"], self.dtype)
        return self._sentence()

    def render(self, index: int) -> np.ndarray:
        """A picture `[H, W, 3]` uint8 of one copy, by the environment itself."""
        picture = self.copies[index].call("render")
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            raise RlcliError(f"{self.copies[index].name} draws no picture of itself")
        return picture.astype(np.uint8)

    def close(self) -> None:
        """Closes every copy."""
        for copy in self.copies:
            copy.env.close()

    def _native(self, actions: np.ndarray) -> np.ndarray:
        """Actions as the environments take them, in the same shape."""
        actions = actions.astype(self.action.dtype, copy=False)
        if isinstance(self.action, spaces.Discrete):
            return actions + self.action.start if self.action.start else actions
        return np.clip(actions, self.action.low, self.action.high)

    def _sentence(self) -> str:
        lost = [copy.where() for copy in self.copies if copy.lost]
        if not lost:
            return ""
        more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
        return (
            f"replaying the actions did not bring back {', '.join(lost[:NAMED])}{more}"
            f": {len(lost)} of {len(self.copies)} episodes end here, and new ones begin"
        )


class Copy:
    """One environment of a vector, in its present episode.

    `place` is its row and column in arrays `[S, B, ...]`; `played` are the actions of
    the episode so far; `lost`, that it is not where its episode should be.
    """

    def __init__(
        self,
        name: str,
        env: gymnasium.Env,
        seed: int,
        place: tuple[int, int],
        limit: Any,
    ) -> None:
        self.name = name
        self.env = env
        self.seed = seed
        self.place = place
        self.limit = limit
        self.episode = 0
        self.played: list[np.ndarray] = []
        self.lost = False
        space = env.observation_space
        self.start = space.start if isinstance(space, spaces.Discrete) else 0

    def begin(self, episode: int) -> Any:
        """Begins an episode; returns its first observation."""
        self.episode, self.played, self.lost = episode, [], False
        number = seed_of(self.seed, self.place[1], episode)
        obs, _ = self.call("reset", seed=number)
        if np.shape(obs) != self.env.observation_space.shape:
            raise RlcliError(
                f"{self.name}: an observation has shape {np.shape(obs)}, "
                f"but its space is {describe(self.env.observation_space)}"
            )
        return obs - self.start if self.start else obs

    def step(self, action: Any, kept: Any) -> tuple[Any, Any, bool, bool]:
        """One step; returns observation, reward, terminated, truncated.

        `action` is what the environment takes, `kept` what is remembered of it.
        """
        obs, reward, terminated, truncated, _ = self.call("step", action)
        self.played.append(kept)
        return obs - self.start if self.start else obs, reward, terminated, truncated

    def call(self, method: str, *args: Any, **keywords: Any) -> Any:
        """Calls the environment's method; what it raises gets its name and place."""
        try:
            with self.limit:
                return getattr(self.env, method)(*args, **keywords)
        except OverdueError as error:
            raise RlcliError(
                f"{self.where()} took longer than {self.limit.seconds:g} s "
                f"for a `{method}`",
                "`timeout` under `environment:` says how long it may take",
            ) from error
        except Exception as error:  # foreign code may raise anything
            lacks = isinstance(error, ImportError | DependencyNotInstalled)
            raise RlcliError(
                f"{self.where()} failed in `{method}`: {type(error).__name__}: {error}",
                EXTRA if lacks else "",
            ) from error

    def where(self) -> str:
        """Which copy it is, for messages."""
        return (
            f"{self.name} (number {self.place[1]} of seed {self.seed}, "
            f"episode {self.episode})"
        )
