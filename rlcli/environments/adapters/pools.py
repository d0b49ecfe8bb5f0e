"""Host vectors: many external environments, stepped simultaneously on the host.

`host.host_environment` builds an `Environment` from a host vector. It has `count`
environments with indices from 0. All arrays are NumPy arrays, in trees for a Tuple or a
Dict. Actions are native, observations canonical (`conversion.canonical_converter`), in
arrays that are never written to again.
"""

import contextlib
import functools
import multiprocessing
import os
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from rlcli.environments.adapters.conversion import (
    HostArray,
    InvalidOutputError,
    action_selector,
    canonical_converter,
    element_stacker,
    select_rows,
    write_rows,
)
from rlcli.environments.adapters.host_errors import (
    EnvironmentFailedError,
    WorkerDiedError,
    close_all,
    with_timeout,
)
from rlcli.registry import user_code
from rlcli.types import ArrayTree

# The time limit that means none: libraries have no common value for it.
NO_TIME_LIMIT = int(np.iinfo(np.int32).max)
_START_METHOD = "forkserver"  # of processes
_SAFE_PATH = "PYTHONSAFEPATH"  # a variable of Python


class HostTimeStep(NamedTuple):
    """The result of a step for each environment: arrays `[count]`, or lists.

    Small vectors use lists of Python numbers and no NumPy operation, which takes 2 to
    5 µs after an XLA program, since its code has left the caches.
    """

    obs: ArrayTree  # the next observations, `[count, ...]`
    reward: Sequence[float] | HostArray
    discount: Sequence[float] | HostArray  # 0 where the episode terminated, else 1
    last: Sequence[bool] | HostArray  # whether it terminated or was truncated
    # A mapping for each environment, or those of the vectors of consecutive ones, see
    # `InfoRecorder.record`
    info: Sequence[Mapping[str, Any]] = ()


def host_timestep(
    obs: ArrayTree,
    reward: HostArray,
    terminated: HostArray,
    truncated: HostArray,
    info: Sequence[Mapping[str, Any]] = (),
) -> HostTimeStep:
    """Builds a `HostTimeStep` from the results of a Gymnasium vector, `[count, ...]`.

    It checks that rewards and flags are numbers; each may be in an array of size 1.
    """
    count = len(jax.tree.leaves(obs)[0])

    def numbers(name: str, values: HostArray) -> HostArray:
        array = np.asarray(values)
        is_column = array.shape[:1] == (count,) and array.size == count
        if not is_column or array.dtype.kind not in "biuf":
            raise InvalidOutputError(
                f"{name} of dtype {array.dtype} and shape {array.shape}, "
                f"not {count} numbers"
            )
        return array.reshape(count)

    rewards = numbers("rewards", reward)
    is_terminated = numbers("`terminated`", terminated)
    last = np.logical_or(is_terminated, numbers("`truncated`", truncated))
    return HostTimeStep(obs, rewards, np.logical_not(is_terminated), last, info)


@runtime_checkable
class HostVector(Protocol):
    """A vector of host environments without auto-reset: only `begin` starts episodes.

    `is_replayable`: the seed and the actions of an episode reproduce it. `group`: as
    many consecutive environments begin and end their episodes together.
    """

    is_replayable: bool = True
    group: int = 1
    can_render: bool = False

    def begin(self, indices: HostArray, seeds: Sequence[int]) -> ArrayTree:
        """Starts an episode in the environments `indices`, each with its seed.

        Returns their observations, `[len(indices), ...]`. `indices` is sorted.
        """
        ...

    def step(self, action: ArrayTree) -> HostTimeStep:
        """Steps all environments, with actions `[count, ...]`."""
        ...

    def render(self, index: int) -> Any:
        """Renders one environment as an image `[H, W, 3]`, if `can_render`."""
        del index  # by default there are none

    def close(self) -> None:
        """Releases all resources."""
        ...


class UnknownNumberError(Exception):
    """An environment has neither such an attribute nor a method that sets it."""


def set_number(call: Callable[..., Sequence[Any]], name: str, value: float) -> None:
    """Sets a number of environments, below their wrappers.

    Calls their method `set_<name>(value)`, if they have one, else sets their attribute
    `name`, which has to be a number. `call(method, *arguments)` calls a method of each.
    """
    if name.startswith("_"):
        raise UnknownNumberError(name)
    setter = f"set_{name}"
    if all(call("has_wrapper_attr", setter)):
        call(setter, value)
        return
    if not all(call("has_wrapper_attr", name)):
        raise UnknownNumberError(name)
    if not all(isinstance(each, _NUMBERS) for each in call("get_wrapper_attr", name)):
        raise UnknownNumberError(name)
    call("set_wrapper_attr", name, value)


_BOOLS = (bool, np.bool_)
_NUMBERS = (float, int, np.floating, np.integer, np.bool_)


def _number(value: Any, index: int, name: str) -> Any:
    """Returns the number in an array of size 1; raises for anything else."""
    array = np.asarray(value)
    if array.size == 1 and array.dtype.kind in "biuf":
        return array.item()
    shape = f" of shape {array.shape}" if array.shape else ""
    problem = f"{name} that is not a number: {_type_name(value)}{shape}"
    raise _invalid_output(index, "step", problem)


def _invalid_output(index: int, method: str, problem: str) -> EnvironmentFailedError:
    """The error for an environment that returned an invalid output."""
    error = EnvironmentFailedError(index, method)
    error.__cause__ = InvalidOutputError(problem, index)
    return error


def _describe_result(result: Any) -> str:
    """Describes an invalid result of `step`."""
    size = f" of {len(result)}" if isinstance(result, tuple) else ""
    fields = "(observation, reward, terminated, truncated, info)"
    return f"{_type_name(result)}{size}, not {fields}"


def _type_name(value: Any) -> str:
    return type(value).__name__ if value is not None else "None"


class SequentialVector(HostVector):
    """Steps copies one after the other in this process, with a `timeout` for each.

    A copy has `group` environments, whose spaces are `observation` and `action`.
    """

    def __init__(
        self,
        copies: Sequence[Any],
        observation: gymnasium.Space,
        action: gymnasium.Space,
        timeout: float | None,
    ) -> None:
        self.copies = copies
        self.can_render = copies[0].render_mode is not None
        self._stack = element_stacker(observation)
        self._select = action_selector(action)
        self._timeout = timeout

    def render(self, index: int) -> Any:
        """As `HostVector.render`: the image of the whole copy."""
        return self._call(index // self.group, "render")

    def close(self) -> None:
        """As `HostVector.close`."""
        close_all(self.copies)

    def _call(self, copy: int, method: str, *args: Any, **keywords: Any) -> Any:
        """Calls a method of a copy; an error names its first environment."""
        try:
            function = with_timeout(getattr(self.copies[copy], method), self._timeout)
            return function(*args, **keywords)
        except (Exception, SystemExit) as error:  # foreign code may raise anything
            raise EnvironmentFailedError(copy * self.group, method) from error


class SyncVector(SequentialVector):
    """Steps environments of Gymnasium sequentially in this process."""

    def __init__(
        self, make: Callable[[], gymnasium.Env], count: int, timeout: float | None
    ) -> None:
        envs = [make() for _ in range(count)]
        first = envs[0]
        super().__init__(envs, first.observation_space, first.action_space, timeout)
        # Resolved once: an attribute lookup per call costs a tenth of a step.
        self._steps = [with_timeout(env.step, timeout) for env in envs]

    def begin(self, indices: HostArray, seeds: Sequence[int]) -> ArrayTree:
        """As `HostVector.begin`."""
        first = []
        for index, seed in zip(indices, seeds, strict=True):
            result = self._call(int(index), "reset", seed=seed)
            if type(result) is not tuple or len(result) != 2:
                problem = f"{_type_name(result)}, not (observation, info)"
                raise _invalid_output(int(index), "reset", problem)
            first.append(result[0])
        return self._stack_obs(first, "reset", indices)

    def step(self, action: ArrayTree) -> HostTimeStep:
        """As `HostVector.step`."""
        obs, reward, discount, last, infos = [], [], [], [], []
        for index, step in enumerate(self._steps):
            single_action = self._select(action, index)
            try:
                result = step(single_action)
            except (Exception, SystemExit) as error:  # foreign code may raise anything
                raise EnvironmentFailedError(index, "step") from error
            if type(result) is not tuple or len(result) != 5:
                raise _invalid_output(index, "step", _describe_result(result))
            next_obs, step_reward, terminated, truncated, info = result
            # Only `isinstance` in the valid case, since this runs at every step.
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
            infos.append(info)
        obs = self._stack_obs(obs, "step")
        return HostTimeStep(obs, reward, discount, last, infos)

    def set_number(self, name: str, value: float) -> None:
        """Sets a number of all environments, as `set_number`."""

        def call(method: str, *arguments: Any) -> list[Any]:
            functions = [env.get_wrapper_attr(method) for env in self.copies]
            return [function(*arguments) for function in functions]

        set_number(call, name, value)

    def _stack_obs(
        self, items: list[Any], method: str, indices: HostArray | None = None
    ) -> ArrayTree:
        """Stacks observations of all environments, or of those with `indices`."""
        try:
            return self._stack(items)
        except InvalidOutputError as error:
            assert error.index is not None  # `element_stacker` sets it
            index = error.index if indices is None else int(indices[error.index])
            raise EnvironmentFailedError(index, method) from error


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    """Context in which new processes of Python import nothing of the current folder.

    `multiprocessing` starts them with `-c`, for which the folder comes first. It may
    come from elsewhere.
    """
    before = os.environ.get(_SAFE_PATH)
    if not user_code.searches_directory():
        os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SAFE_PATH, None)


@typing.no_type_check  # what checks annotations at run time cannot be pickled
def _maker_in_process(make: Callable[[], gymnasium.Env], *, is_safe: bool) -> Callable:
    """Returns `make` for a process of `AsyncVectorEnv`.

    `is_safe`: the user has set the variable of `_safe_path`, so it stays set there. The
    vector expects rewards that are numbers, and closes an environment itself.
    Function and class are local, so that they are pickled by value: the processes would
    import JAX with a module of rlcli.
    """

    class InProcess(gymnasium.Wrapper):
        def step(self, action: Any) -> tuple:
            obs, *numbers, info = self.env.step(action)
            return (obs, *(np.asarray(number).item() for number in numbers), info)

        def close(self) -> None:
            # Closing another environment of its kind has already given the warning.
            with contextlib.suppress(Exception, SystemExit):
                self.env.close()

    parent = os.getpid()

    def make_in_process() -> gymnasium.Env:
        if not is_safe and os.getpid() != parent:  # the vector makes one there as well
            os.environ.pop("PYTHONSAFEPATH", None)
        return InProcess(make())

    return make_in_process


class AsyncVector(HostVector):
    """Steps each environment in its own process; observations are in shared memory.

    The processes call `make`, so it has to be picklable. A step of all environments may
    take `timeout` seconds.
    """

    def __init__(
        self, make: Callable[[], gymnasium.Env], count: int, timeout: float | None
    ) -> None:
        # Forking this process would copy locks that threads of JAX may hold. The fork
        # server has imported only Gymnasium.
        multiprocessing.get_context(_START_METHOD).set_forkserver_preload(["gymnasium"])
        maker = _maker_in_process(make, is_safe=_SAFE_PATH in os.environ)
        with _safe_path():
            self.env = AsyncVectorEnv(
                [maker] * count,
                context=_START_METHOD,
                autoreset_mode=AutoresetMode.DISABLED,
            )
        self._to_canonical = canonical_converter(self.env.single_observation_space)
        self._reset = with_timeout(self.env.reset, timeout)
        self._step = with_timeout(self.env.step, timeout)

    def begin(self, indices: HostArray, seeds: Sequence[int]) -> ArrayTree:
        """As `HostVector.begin`."""
        mask = np.zeros(self.env.num_envs, np.bool_)
        mask[indices] = True
        all_seeds: list[int | None] = [None] * len(mask)  # used where the mask is true
        for index, seed in zip(indices, seeds, strict=True):
            all_seeds[index] = seed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # errors are raised as well
            obs, _ = self._call(
                "reset", self._reset, seed=all_seeds, options={"reset_mask": mask}
            )
        return select_rows(self._to_canonical(obs), indices)

    def step(self, action: ArrayTree) -> HostTimeStep:
        """As `HostVector.step`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # errors are raised as well
            obs, *numbers, info = self._call("step", self._step, action)
        return host_timestep(self._to_canonical(obs), *numbers, info=[info])

    def _call(
        self, method: str, function: Callable, *args: Any, **keywords: Any
    ) -> Any:
        """Calls the vector; an error names the environment whose process failed."""
        try:
            return function(*args, **keywords)
        except (EOFError, ConnectionError):  # a pipe has no other end
            for index, process in enumerate(self.env.processes):
                process.join(0.2)  # it may be about to end
                if process.exitcode is not None:
                    died = WorkerDiedError(
                        f"its process ended with exit code {process.exitcode}"
                    )
                    raise EnvironmentFailedError(index, method) from died
            raise
        except Exception as error:  # foreign code may raise anything
            # Gymnasium has closed the pipe of a process that reported an exception.
            pipes = [
                index for index, pipe in enumerate(self.env.parent_pipes) if not pipe
            ]
            if not pipes:
                raise
            raise EnvironmentFailedError(pipes[-1], method) from error

    def set_number(self, name: str, value: float) -> None:
        """Sets a number of all environments, as `set_number`."""
        call = functools.partial(self._call, "set_number", self.env.call)
        set_number(call, name, value)

    def close(self) -> None:
        """As `HostVector.close`; terminates processes with an unfinished call."""
        is_busy = self.env._state is not AsyncState.DEFAULT
        is_busy |= any(not process.is_alive() for process in self.env.processes)
        if is_busy:  # waiting for the result could block: it may be half read
            self.env._state = AsyncState.DEFAULT
        if not self.env.closed:
            self.env.close(terminate=is_busy)


class NativeVector(HostVector):
    """Native vectors of an environment: one for each seed, with its own random stream.

    They reset environments themselves. With `AutoresetMode.NEXT_STEP`, an episode
    starts with the last observation of its predecessor and a step without effect, of
    reward 0.
    """

    is_replayable = False

    def __init__(self, make: Callable[[], VectorEnv], seeds: int) -> None:
        self.vectors = [make() for _ in range(seeds)]
        first_vector = self.vectors[0]
        self._to_canonical = canonical_converter(first_vector.single_observation_space)
        self.size = first_vector.num_envs
        self._autoreset_mode = first_vector.metadata.get("autoreset_mode")
        self._last_obs: ArrayTree = None  # the first one where an episode has ended

    def begin(self, indices: HostArray, seeds: Sequence[int]) -> ArrayTree:
        """As `HostVector.begin`, except for a subset in vectors that reset themselves.

        They start new episodes where episodes have ended, and continue the others.
        """
        if len(indices) == self.size * len(self.vectors):
            first = [
                vector.reset(seed=seeds[row * self.size])[0]
                for row, vector in enumerate(self.vectors)
            ]
            self._last_obs = self._concatenate(first)
        elif self._autoreset_mode == AutoresetMode.DISABLED:
            self._reset(indices, seeds)
        return select_rows(self._last_obs, indices)

    def step(self, action: ArrayTree) -> HostTimeStep:
        """As `HostVector.step`."""
        parts = []
        for row, vector in enumerate(self.vectors):
            rows = slice(row * self.size, (row + 1) * self.size)
            parts.append(vector.step(select_rows(action, rows)))
        fresh, *rest = (list(values) for values in zip(*parts, strict=True))
        self._last_obs = self._concatenate(fresh)
        reward, terminated, truncated = map(np.concatenate, rest[:3])
        obs = self._last_obs
        if self._autoreset_mode == AutoresetMode.SAME_STEP:
            obs = self._final_obs([part[4] for part in parts], terminated | truncated)
        infos = [part[4] for part in parts]
        return host_timestep(obs, reward, terminated, truncated, infos)

    def close(self) -> None:
        """As `HostVector.close`."""
        close_all(self.vectors)

    def _concatenate(self, parts: list[Any]) -> ArrayTree:
        observations = [self._to_canonical(part) for part in parts]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *observations)

    def _reset(self, indices: HostArray, seeds: Sequence[int]) -> None:
        """Resets the environments with these indices, with a reset mask."""
        self._last_obs = jax.tree.map(np.copy, self._last_obs)
        for row, vector in enumerate(self.vectors):
            own_rows = indices[indices // self.size == row]
            if not len(own_rows):
                continue
            mask = np.zeros(self.size, np.bool_)
            mask[own_rows % self.size] = True
            options = {"reset_mask": mask}
            seed = seeds[list(indices).index(own_rows[0])]
            obs, _ = vector.reset(seed=seed, options=options)
            own_obs = select_rows(self._to_canonical(obs), own_rows % self.size)
            write_rows(self._last_obs, own_rows, own_obs)

    def _final_obs(self, infos: list[dict], is_done: HostArray) -> ArrayTree:
        """Returns the next observations: `final_obs` where episodes ended."""
        obs = jax.tree.map(np.copy, self._last_obs)
        for index in np.flatnonzero(is_done):
            row, place = divmod(int(index), self.size)
            last = self._to_canonical(infos[row]["final_obs"][place])
            write_rows(obs, index, last)
        return obs
