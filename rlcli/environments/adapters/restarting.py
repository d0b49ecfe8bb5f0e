"""Restarting: a host vector whose environments are rebuilt when they fail.

The episode of an environment that raises an exception, exceeds its timeout, returns an
invalid output or loses its process ends there: its last step is a truncation at the
observation before, with reward 0. The next episode begins in a new environment.

With `train.on_error: restart` the vector of a host environment is a `RestartingVector`,
so the loop knows nothing of failures. Environments that are stepped sequentially fail
and restart alone (the agents of a game together); the environments of other vectors
restart together. `Host.restarts` returns counts with the step of each restart,
so that the rows of metrics do not depend on the ends of chunks.
"""

import contextlib
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from rlcli.environments.adapters.conversion import HostArray, map_tree
from rlcli.environments.adapters.host_errors import EnvironmentFailedError, close_all
from rlcli.environments.adapters.limits import with_timeout
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


class RestartingVector:
    """Vectors of `part_size` environments each; one that fails is made again.

    `report(rows, method, error)` is called for each failure, before the restart: `rows`
    are the environments whose episodes end. Closing one may take `timeout` seconds.
    """

    def __init__(
        self,
        make: Callable[[int], HostVector],
        count: int,
        part_size: int,
        timeout: float | None = None,
    ) -> None:
        self.report: Callable[[HostArray, str, BaseException], None] = _ignore
        self._numbers: dict[str, float] = {}  # that hooks have set
        self._new = lambda: make(part_size)
        self._timeout = timeout
        self._rows = np.split(np.arange(count), range(part_size, count, part_size))
        self._parts = [self._make() for _ in self._rows]
        self._failures = [0] * len(self._parts)  # in a row
        # Rows whose episode was lost, and that have not begun another one.
        self._is_lost = np.zeros(count, np.bool_)
        self._obs: list[ArrayTree] = [None] * len(self._parts)
        self.is_replayable = all(part.is_replayable for part in self._parts)
        self.can_render = all(part.can_render for part in self._parts)
        self.group = self._parts[0].group

    def _make(self) -> HostVector:
        part = self._new()
        for name, value in self._numbers.items():
            _set_number(part, name, value)
        return part

    def set_number(self, name: str, value: float) -> None:
        """Sets a number of all environments, also of those that are made later."""
        for part in self._parts:
            _set_number(part, name, value)
        self._numbers[name] = value

    def begin(self, indices: HostArray, seeds: Sequence[int]) -> ArrayTree:
        """As `HostVector.begin`."""
        first = []
        for part, rows in enumerate(self._rows):
            chosen = np.isin(indices, rows)
            if chosen.any():
                own_seeds = [
                    seed for seed, use in zip(seeds, chosen, strict=True) if use
                ]
                first.append(self._begin_part(part, indices[chosen], own_seeds))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *first)

    def step(self, action: ArrayTree) -> HostTimeStep:
        """As `HostVector.step`; the environments that failed have a truncation."""
        timesteps = [
            self._step_part(part, map_tree(lambda leaf, rows=rows: leaf[rows], action))
            for part, rows in enumerate(self._rows)
        ]
        obs, *rest, infos = zip(*timesteps, strict=True)
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *obs)
        is_aligned = len({*map(len, infos)}) == 1
        info = [info for part in infos for info in part] if is_aligned else []
        return HostTimeStep(joined, *(np.concatenate(each) for each in rest), info=info)

    def render(self, index: int) -> Any:
        """As `HostVector.render`."""
        part, place = divmod(index, len(self._rows[0]))
        return self._parts[part].render(place)

    def close(self) -> None:
        """As `HostVector.close`."""
        close_all(self._parts)

    def _begin_part(
        self, part: int, indices: HostArray, seeds: Sequence[int]
    ) -> ArrayTree:
        rows = self._rows[part]
        local = indices - rows[0]
        places, place_seeds = local, seeds
        while True:
            try:
                first = self._parts[part].begin(places, place_seeds)
                break
            except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code
                self._restart(part, rows, "begin", error)
                self._is_lost[np.setdiff1d(rows, indices)] = True
                # All environments of the new vector have to begin.
                seed_of = dict(zip(local, seeds, strict=True))
                places = np.arange(len(rows))
                place_seeds = [seed_of.get(place, seeds[0]) for place in places]
        first = map_tree(operator.itemgetter(np.isin(places, local)), first)
        self._remember(part, local, first)
        self._is_lost[indices] = False
        return first

    def _step_part(self, part: int, action: ArrayTree) -> HostTimeStep:
        rows = self._rows[part]
        try:
            timestep = self._parts[part].step(action)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code
            self._restart(part, rows, "step", error)
            self._is_lost[rows] = True
            return self._truncation(part)
        self._failures[part] = 0
        if not self._is_lost[rows].any():
            self._obs[part] = timestep.obs
            return timestep
        lost, placeholder = self._is_lost[rows], self._truncation(part)

        def choose(old: Any, new: Any) -> HostArray:
            new = np.asarray(new)
            return np.where(lost.reshape(lost.shape + (1,) * (new.ndim - 1)), old, new)

        obs = jax.tree.map(choose, placeholder.obs, timestep.obs)
        self._obs[part] = obs
        numbers = map(choose, placeholder[1:-1], timestep[1:-1])
        return HostTimeStep(obs, *numbers, info=timestep.info)

    def _truncation(self, part: int) -> HostTimeStep:
        """The last step of lost episodes: at the observation before, with reward 0."""
        count = len(self._rows[part])
        return HostTimeStep(
            map_tree(np.copy, self._obs[part]),
            np.zeros(count),
            np.ones(count),
            np.ones(count, np.bool_),
            [{}],
        )

    def _remember(self, part: int, local: HostArray, first: ArrayTree) -> None:
        """Stores the first observations of episodes."""
        if self._obs[part] is None:  # all begin at first
            self._obs[part] = first
            return
        obs = map_tree(np.copy, self._obs[part])
        for leaf, new in zip(jax.tree.leaves(obs), jax.tree.leaves(first), strict=True):
            leaf[local] = new
        self._obs[part] = obs

    def _restart(
        self, part: int, rows: HostArray, method: str, error: BaseException
    ) -> None:
        """Makes a part again; raises its error after too many failures in a row."""
        if isinstance(error, EnvironmentFailedError):  # of an index within the part
            error.index += int(rows[0])
        self._failures[part] += 1
        if self._failures[part] > MAX_FAILURES:
            raise error
        self.report(rows, method, error)
        with contextlib.suppress(Exception, SystemExit):  # it may be in any state
            with_timeout(self._parts[part].close, self._timeout)()
        self._parts[part] = self._make()


def _set_number(part: Any, name: str, value: float) -> None:
    if not hasattr(part, "set_number"):
        raise UnknownNumberError(name)
    part.set_number(name, value)


def _ignore(rows: HostArray, method: str, error: BaseException) -> None:
    del rows, method, error
