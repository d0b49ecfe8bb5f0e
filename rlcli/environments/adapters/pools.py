"""Pools: many environments of somebody else's, stepped at once on the host.

What `host.host_environment` makes a vector of. A pool has `count` environments,
numbered from 0; all arrays are NumPy's, trees of them for a Tuple or a Dict. Actions
are as environments take them, observations as parts see them
(`conversion.canonical_converter`), in arrays that nobody writes to again.
"""

from __future__ import annotations

import multiprocessing
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from rlcli.environments.adapters.conversion import (
    AnswerError,
    HostArray,
    canonical_converter,
    element_stacker,
    map_tree,
)
from rlcli.environments.adapters.limits import with_timeout
from rlcli.types import ArrayTree

# Steps of an episode without a time limit: a word for "none" is nowhere the same.
NO_TIME_LIMIT = int(np.iinfo(np.int32).max)
_MAX_SEED = 2**30  # of vectors, some of which take int32 and count on from it
_START_METHOD = "forkserver"  # how processes are made


class HostTimeStep(NamedTuple):
    """What a pool says to a step, of each environment: arrays `[count]`, or lists.

    Lists of a few are made of Python's numbers, without an operation of NumPy's: after
    a program of XLA's one of those takes 2 to 5 µs: its code has left the caches.
    """

    obs: ArrayTree  # what the actions led to, `[count, ...]`
    reward: Sequence[float] | HostArray
    discount: Sequence[float] | HostArray  # 0 where the episode terminated, else 1
    last: Sequence[bool] | HostArray  # whether it ended, terminated or truncated


def host_timestep(
    obs: ArrayTree, reward: HostArray, terminated: HostArray, truncated: HostArray
) -> HostTimeStep:
    """Answers of a vector as Gymnasium's give them, `[count, ...]`."""
    for name, each in (
        ("rewards", reward),
        ("`terminated`", terminated),
        ("`truncated`", truncated),
    ):
        array = np.asarray(each)
        count = len(jax.tree.leaves(obs)[0])
        if array.shape != (count,) or array.dtype.kind not in "biuf":
            raise AnswerError(
                f"{name} of {array.dtype} and shape {array.shape}, not {count} numbers"
            )
    last = np.logical_or(terminated, truncated)
    return HostTimeStep(obs, reward, np.logical_not(terminated), last)


class HostVector(Protocol):
    """Environments that begin no episode unless `begin` says so."""

    # Whether the seed of an episode and its actions bring it back; and whether it
    # draws pictures itself.
    is_replayable: bool
    can_render: bool

    def begin(self, indices: HostArray, seeds: Sequence[int]) -> ArrayTree:
        """Begins an episode in the environments numbered `indices`, each with its seed.

        Returns their observations, `[len(indices), ...]`. `indices` grows.
        """
        ...

    def step(self, action: ArrayTree) -> HostTimeStep:
        """One step of all, with actions `[count, ...]`."""
        ...

    def render(self, index: int) -> Any:
        """A picture `[H, W, 3]` of one of them, where it `can_render`."""
        ...

    def close(self) -> None:
        """Lets go of everything."""
        ...


class EnvironmentFailedError(Exception):
    """Environment `index` raised, as `__cause__`, in a method that the pool called."""

    def __init__(self, index: int, method: str) -> None:
        super().__init__(f"environment {index} failed in `{method}`")
        self.index = index
        self.method = method


_BOOLS = (bool, np.bool_)
_NUMBERS = (float, int, np.floating, np.integer, np.bool_)


def _number(value: Any, index: int, name: str) -> Any:
    """The number in an array of one; an error for anything else that is no number."""
    array = np.asarray(value)
    if array.size == 1 and array.dtype.kind in "biuf":
        return array.item()
    shape = f" of shape {array.shape}" if array.shape else ""
    said = f"{name} that is no number: {_type(value)}{shape}"
    raise _failed(index, "step", said)


def _failed(index: int, method: str, problem: str) -> EnvironmentFailedError:
    """The error of an environment that returned what it must not."""
    error = EnvironmentFailedError(index, method)
    error.__cause__ = AnswerError(problem, index)
    return error


def _no_answer(answer: Any) -> str:
    """What was returned in place of an answer to a step."""
    some = f" of {len(answer)}" if isinstance(answer, tuple) else ""
    fields = "(observation, reward, terminated, truncated, info)"
    return f"{_type(answer)}{some}, not {fields}"


def _type(value: Any) -> str:
    return type(value).__name__ if value is not None else "None"


class SyncVector:
    """Copies in this process, one after the other; each may take `timeout` seconds."""

    is_replayable = True

    def __init__(
        self, make: Callable[[], gymnasium.Env], count: int, timeout: float | None
    ) -> None:
        self.envs = [make() for _ in range(count)]
        # Found once, and called without a detour: that would be a tenth of a step.
        self._steps = [with_timeout(env.step, timeout) for env in self.envs]
        self._stack = element_stacker(self.envs[0].observation_space)
        self.can_render = self.envs[0].render_mode is not None
        self._timeout = timeout

    def begin(self, indices: HostArray, seeds: Sequence[int]) -> ArrayTree:
        """As `Pool.begin`."""
        first = []
        for index, seed in zip(indices, seeds, strict=True):
            answer = self._call(int(index), "reset", seed=seed)
            if type(answer) is not tuple or len(answer) != 2:
                problem = f"{_type(answer)}, not (observation, info)"
                raise _failed(int(index), "reset", problem)
            first.append(answer[0])
        return self._joined(first, "reset", indices)

    def step(self, action: ArrayTree) -> HostTimeStep:
        """As `Pool.step`."""
        obs, reward, discount, last = [], [], [], []
        for index, step in enumerate(self._steps):
            single_action = map_tree(operator.itemgetter(index), action)
            try:
                result = step(single_action)
            except Exception as error:  # foreign code may raise anything
                raise EnvironmentFailedError(index, "step") from error
            if type(result) is not tuple or len(result) != 5:
                raise _failed(index, "step", _no_answer(result))
            next_obs, step_reward, terminated, truncated, _ = result
            # A lone `isinstance` where all is well: it is asked at every step.
            if not isinstance(step_reward, _NUMBERS):
                step_reward = _number(step_reward, index, "a reward")
            if not isinstance(terminated, _BOOLS):
                terminated = bool(_number(terminated, index, "`terminated`"))
            if not isinstance(truncated, _BOOLS):
                truncated = bool(_number(truncated, index, "`truncated`"))
            obs.append(next_obs)
            reward.append(step_reward)
            discount.append(0.0 if terminated else 1.0)
            last.append(terminated or truncated)
        return HostTimeStep(self._joined(obs, "step"), reward, discount, last)

    def render(self, index: int) -> Any:
        """As `Pool.render`."""
        return self._call(index, "render")

    def close(self) -> None:
        """As `Pool.close`."""
        for env in self.envs:
            env.close()

    def _joined(
        self, items: list[Any], method: str, which: HostArray | None = None
    ) -> ArrayTree:
        """Observations as arrays; those of the environments numbered `which`."""
        try:
            return self._stack(items)
        except AnswerError as error:
            assert (
                error.index is not None
            )  # `element_stacker` says which of the items it is
            index = error.index if which is None else int(which[error.index])
            raise EnvironmentFailedError(index, method) from error

    def _call(self, index: int, method: str, **keywords: Any) -> Any:
        try:
            bound_method = getattr(self.envs[index], method)
            return with_timeout(bound_method, self._timeout)(**keywords)
        except Exception as error:  # foreign code may raise anything
            raise EnvironmentFailedError(index, method) from error


class AsyncVector:
    """A process for each copy, which write observations into memory that they share.

    `make` is called in them, so it has to be picklable. Together they may take
    `timeout` seconds for a step.
    """

    is_replayable = True
    can_render = False

    def __init__(
        self, make: Callable[[], gymnasium.Env], count: int, timeout: float | None
    ) -> None:
        # Not forked of this process: that copies locks which threads of JAX may hold.
        # Of one that has imported Gymnasium once, and nothing else.
        multiprocessing.get_context(_START_METHOD).set_forkserver_preload(["gymnasium"])
        self.env = AsyncVectorEnv(
            [make] * count, context=_START_METHOD, autoreset_mode=AutoresetMode.DISABLED
        )
        self._to_canonical = canonical_converter(self.env.single_observation_space)
        self._reset = with_timeout(self.env.reset, timeout)
        self._step = with_timeout(self.env.step, timeout)

    def begin(self, indices: HostArray, seeds: Sequence[int]) -> ArrayTree:
        """As `Pool.begin`."""
        mask = np.zeros(self.env.num_envs, np.bool_)
        mask[indices] = True
        all_seeds: list[int | None] = [None] * len(mask)  # read where the mask holds
        for index, seed in zip(indices, seeds, strict=True):
            all_seeds[index] = seed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of what it raises as well
            obs, _ = self._reset(seed=all_seeds, options={"reset_mask": mask})
        return jax.tree.map(lambda leaf: leaf[indices], self._to_canonical(obs))

    def step(self, action: ArrayTree) -> HostTimeStep:
        """As `Pool.step`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of what it raises as well
            obs, reward, terminated, truncated, _ = self._step(action)
        return host_timestep(self._to_canonical(obs), reward, terminated, truncated)

    def render(self, index: int) -> Any:
        """They draw in their own processes, and nothing here."""
        del index

    def close(self) -> None:
        """As `Pool.close`; what is still at work, or was interrupted, is stopped."""
        busy = self.env._state is not AsyncState.DEFAULT
        if busy:  # else it would wait for an answer of which half may be read
            self.env._state = AsyncState.DEFAULT
        if not self.env.closed:
            self.env.close(terminate=busy)


class NativeVector:
    """Vectors by the environments' author: one for each seed, with streams of its own.

    How they begin episodes is their own affair. Where they do so one step late
    (`AutoresetMode.NEXT_STEP`), an episode opens with its predecessor's last
    observation, and a step that does nothing, with reward 0.
    """

    is_replayable = False
    can_render = False

    def __init__(self, make: Callable[[], VectorEnv], seeds: int) -> None:
        self.vectors = [make() for _ in range(seeds)]
        first_vector = self.vectors[0]
        self._to_canonical = canonical_converter(first_vector.single_observation_space)
        self.size = first_vector.num_envs
        self._autoreset_mode = first_vector.metadata.get("autoreset_mode")
        self._last_obs: ArrayTree = None  # to begin with, where an episode has ended

    def begin(self, indices: HostArray, seeds: Sequence[int]) -> ArrayTree:
        """As `Pool.begin`; of a part of them only where their episodes have ended."""
        if len(indices) == self.size * len(self.vectors):
            first = [
                vector.reset(seed=seeds[row * self.size] % _MAX_SEED)[0]
                for row, vector in enumerate(self.vectors)
            ]
            self._last_obs = self._concatenate(first)
        elif self._autoreset_mode == AutoresetMode.DISABLED:
            self._reset(indices, seeds)
        return jax.tree.map(lambda leaf: leaf[indices], self._last_obs)

    def step(self, action: ArrayTree) -> HostTimeStep:
        """As `Pool.step`."""
        parts = []
        for row, vector in enumerate(self.vectors):
            rows = slice(row * self.size, (row + 1) * self.size)
            parts.append(
                vector.step(jax.tree.map(lambda x, rows=rows: x[rows], action))
            )
        fresh, *rest = (list(values) for values in zip(*parts, strict=True))
        self._last_obs = self._concatenate(fresh)
        reward, terminated, truncated = map(np.concatenate, rest[:3])
        obs = self._last_obs
        if self._autoreset_mode == AutoresetMode.SAME_STEP:
            obs = self._final_obs([part[4] for part in parts], terminated | truncated)
        return host_timestep(obs, reward, terminated, truncated)

    def render(self, index: int) -> Any:
        """They draw all of them or none."""
        del index

    def close(self) -> None:
        """As `Pool.close`."""
        for vector in self.vectors:
            vector.close()

    def _concatenate(self, parts: list[Any]) -> ArrayTree:
        observations = [self._to_canonical(part) for part in parts]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *observations)

    def _reset(self, indices: HostArray, seeds: Sequence[int]) -> None:
        """Begins episodes where a mask says so."""
        self._last_obs = jax.tree.map(np.copy, self._last_obs)
        for row, vector in enumerate(self.vectors):
            own_rows = indices[indices // self.size == row]
            if not len(own_rows):
                continue
            mask = np.zeros(self.size, np.bool_)
            mask[own_rows % self.size] = True
            options = {"reset_mask": mask}
            seed = seeds[list(indices).index(own_rows[0])] % _MAX_SEED
            obs, _ = vector.reset(seed=seed, options=options)
            for place, new in zip(
                jax.tree.leaves(self._last_obs),
                jax.tree.leaves(self._to_canonical(obs)),
                strict=True,
            ):
                place[own_rows] = new[own_rows % self.size]

    def _final_obs(self, infos: list[dict], is_done: HostArray) -> ArrayTree:
        """The observations that the step led to: `final_obs` where episodes ended."""
        obs = jax.tree.map(np.copy, self._last_obs)
        for index in np.flatnonzero(is_done):
            row, place = divmod(int(index), self.size)
            last = self._to_canonical(infos[row]["final_obs"][place])
            for leaf, value in zip(
                jax.tree.leaves(obs), jax.tree.leaves(last), strict=True
            ):
                leaf[index] = value
        return obs
