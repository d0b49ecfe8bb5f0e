"""Restarting: a host vector whose environments are rebuilt when they fail.

The episode of an environment that raises an exception, exceeds its timeout, returns an
invalid output or loses its process is lost: `host_vector` ends it with a truncation at
the observation before, with reward 0. The next episode begins in a new environment.

With `train.on_error: restart` the vector of a host environment is a `RestartingVector`,
so the loop knows nothing of failures. Environments that are stepped sequentially fail
and restart alone (the agents of a game together); the environments of other vectors
restart together. `Host.restarts` returns counts with the step of each restart,
so that the rows of metrics do not depend on the ends of chunks.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from rlcli.environments.adapters.conversion import HostArray, select_rows
from rlcli.environments.adapters.host_errors import (
    EnvironmentFailedError,
    close_all,
    with_timeout,
)
from rlcli.environments.adapters.pools import (
    HostTimeStep,
    HostVector,
    UnknownNumberError,
)
from rlcli.types import ArrayTree

MAX_FAILURES = 3  # in a row, without a step between them; then the run ends


class Restarts(NamedTuple):
    """The restarts of a host environment, as `Host.restarts` returns them."""

    counts: HostArray  # int64 `[S]`, of each seed since the start of the run
    steps: int  # of each environment since the start or the resume of this process
    events: Sequence[tuple[int, int]]  # (index of the seed, step), since the last call
    messages: Sequence[str]  # one for each failure since the last call

    def counts_before(self, steps: int) -> HostArray:
        """The counts as they were so many steps ago, not before the last call."""
        counts = self.counts.copy()
        for seed, step in self.events:
            counts[seed] -= step > self.steps - steps
        return counts


class RestartRecord:
    """Counts the restarts of each seed."""

    def __init__(self, seeds: int) -> None:
        self.counts = np.zeros(seeds, np.int64)
        self._events: list[tuple[int, int]] = []
        self._messages: list[str] = []

    def add(self, seeds: HostArray, step: int, message: str) -> None:
        """Adds a restart of environments of these seeds in a step."""
        self._messages.append(message)
        for seed in seeds:
            self.counts[seed] += 1
            self._events.append((int(seed), step))

    def take(self, steps: int) -> Restarts:
        """The restarts since the last call."""
        events, messages = self._events, self._messages
        self._events, self._messages = [], []
        return Restarts(self.counts.copy(), steps, events, messages)


class RestartingVector(HostVector):
    """Vectors of `vector_size` environments each; one that fails is made again.

    `report(rows, method, error)` is called for each failure, before the restart: `rows`
    are the environments whose episodes are lost, and what a step returns for them has
    no meaning. Closing one may take `timeout` seconds.
    """

    def __init__(
        self,
        make: Callable[[int], HostVector],
        count: int,
        vector_size: int,
        timeout: float | None = None,
    ) -> None:
        self.report: Callable[[HostArray, str, BaseException], None] = _ignore
        self._numbers: dict[str, float] = {}  # that hooks have set
        self._new = lambda: make(vector_size)
        self._timeout = timeout
        self._rows = np.split(np.arange(count), range(vector_size, count, vector_size))
        self._vectors = [self._make() for _ in self._rows]
        self._failures = [0] * len(self._vectors)  # in a row
        self._example: ArrayTree = None  # observations of a vector
        self.is_replayable = all(vector.is_replayable for vector in self._vectors)
        self.can_render = all(vector.can_render for vector in self._vectors)
        self.group = self._vectors[0].group

    def _make(self) -> HostVector:
        vector = self._new()
        for name, value in self._numbers.items():
            _set_number(vector, name, value)
        return vector

    def set_number(self, name: str, value: float) -> None:
        """Sets a number of all environments, also of those that are made later."""
        for vector in self._vectors:
            _set_number(vector, name, value)
        self._numbers[name] = value

    def begin(self, indices: HostArray, seeds: Sequence[int]) -> ArrayTree:
        """As `HostVector.begin`."""
        first = []
        for index, rows in enumerate(self._rows):
            chosen = np.isin(indices, rows)
            if chosen.any():
                own_seeds = [
                    seed for seed, use in zip(seeds, chosen, strict=True) if use
                ]
                first.append(self._begin_vector(index, indices[chosen], own_seeds))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *first)

    def step(self, action: ArrayTree) -> HostTimeStep:
        """As `HostVector.step`, except for the environments that failed."""
        timesteps = [
            self._step_vector(index, select_rows(action, rows))
            for index, rows in enumerate(self._rows)
        ]
        obs, *rest, infos = zip(*timesteps, strict=True)
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *obs)
        is_aligned = len({*map(len, infos)}) == 1
        info = [info for each in infos for info in each] if is_aligned else []
        return HostTimeStep(joined, *(np.concatenate(each) for each in rest), info=info)

    def render(self, index: int) -> Any:
        """As `HostVector.render`."""
        index, place = divmod(index, len(self._rows[0]))
        return self._vectors[index].render(place)

    def close(self) -> None:
        """As `HostVector.close`."""
        close_all(self._vectors)

    def _begin_vector(
        self, index: int, indices: HostArray, seeds: Sequence[int]
    ) -> ArrayTree:
        rows = self._rows[index]
        local = indices - rows[0]
        places, place_seeds = local, seeds
        while True:
            try:
                first = self._vectors[index].begin(places, place_seeds)
                break
            except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code
                self._restart(index, rows, "begin", error)
                # All environments of the new vector have to begin.
                seed_of = dict(zip(local, seeds, strict=True))
                places = np.arange(len(rows))
                place_seeds = [seed_of.get(place, seeds[0]) for place in places]
        if self._example is None:  # all begin at first
            self._example = first
        return select_rows(first, np.isin(places, local))

    def _step_vector(self, index: int, action: ArrayTree) -> HostTimeStep:
        rows = self._rows[index]
        try:
            timestep = self._vectors[index].step(action)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code
            self._restart(index, rows, "step", error)
            count = len(rows)
            numbers = np.zeros(count), np.ones(count), np.ones(count, np.bool_)
            return HostTimeStep(self._example, *numbers, info=[{}])
        self._failures[index] = 0
        return timestep

    def _restart(
        self, index: int, rows: HostArray, method: str, error: BaseException
    ) -> None:
        """Makes a vector again; raises its error after too many failures in a row."""
        if isinstance(error, EnvironmentFailedError):  # of an index within the vector
            error.index += int(rows[0])
        self._failures[index] += 1
        if self._failures[index] > MAX_FAILURES:
            raise error
        self.report(rows, method, error)
        with contextlib.suppress(Exception, SystemExit):  # it may be in any state
            with_timeout(self._vectors[index].close, self._timeout)()
        self._vectors[index] = self._make()


def _set_number(vector: Any, name: str, value: float) -> None:
    if not hasattr(vector, "set_number"):
        raise UnknownNumberError(name)
    vector.set_number(name, value)


def _ignore(rows: HostArray, method: str, error: BaseException) -> None:
    del rows, method, error
