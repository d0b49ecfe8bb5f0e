"""Tracking: hands the results of a run to its trackers, each in a thread of its own.

Training never waits for a tracker before the end of the run. A tracker that raises is
left out of the rest of the run.

A thread gets rows where `metrics.jsonl` gets them: training only puts them into a
queue. `metrics.jsonl` is the source: a tracker that could not keep up, or that a resume
adds, reads its rows there, and `trackers.json` records what each tracker has.
`training.tracking.track_records` names the scalars and takes means over seeds.
"""

import copy
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError, quote
from rlcli.recipe import Recipe, resolve
from rlcli.registry import plugins
from rlcli.runs.files import refuse_link
from rlcli.runs.metrics import read_metrics
from rlcli.runs.run_folder import Run
from rlcli.trackers import Record, TrackedRun, Tracker
from rlcli.training.tracking.track_records import Marks, Results, make_records, mark_key

_PATIENCE = 60.0  # seconds that a tracker has after the end of the run
_POLL = 0.1  # seconds between two checks for requests to stop
MAX_ROWS = 10_000  # that wait
# Of histograms that wait; those of the last evaluation always do.
MAX_BYTES = 64 * 2**20


def build_trackers(recipe: Recipe) -> dict[str, Tracker]:
    """The trackers of a recipe, by name; an error says what one of them lacks."""
    from rlcli.assembly.build_part import build_listed_part  # here: imports JAX

    trackers: dict[str, Tracker] = {}
    for index, part in enumerate(recipe.train.trackers):
        if part.name in trackers:
            place = ("train", "trackers", index)
            message = f"tracker {quote(part.name)} is listed twice"
            raise recipe.error(place, message, "remove one of them")
        hint = "a tracker is a `rlcli.trackers.Tracker(start, log, finish)`"
        trackers[part.name] = build_listed_part(part, recipe, index, Tracker, hint)
    return trackers


def _refuse_links(folder: Path) -> None:
    """Refuses links in a folder in which trackers write, and in its folders.

    Except in that of W&B, which makes links itself and follows none.
    """
    for parent, names, files in os.walk(folder):
        if parent == str(folder):
            names[:] = [each for each in names if each != "checkpoints"]
        for name in (*names, *files):
            refuse_link(Path(parent, name))
        names[:] = [each for each in names if each != "wandb"]


class Tracking:
    """The trackers of a run in progress.

    `trackers.json` in its folder has the id of the run, and the last step that each
    tracker has. A run that is resumed hands over what it has written to `metrics.jsonl`
    beyond that step. If its process was killed between the two, the tracker gets the
    rows of a chunk again: it gets each row at least once.
    """

    def __init__(
        self,
        trackers: Mapping[str, Tracker],
        folder: Run,
        recipe: Recipe,
        seeds: Sequence[int],
        step: int,
    ) -> None:
        """`step` is that at which the run begins or is resumed."""
        self.status = "failed"  # with which `finish` ends the trackers
        self._messages: deque[str] = deque()
        self._warned: set[str] = set()
        if not trackers:
            self._workers: list[_Worker] = []
            return
        _refuse_links(folder.folder)
        marks = Marks(folder.trackers)
        info = folder.read_info()
        run = TrackedRun(
            id=marks.id,
            name=f"{recipe.name}/{folder.folder.name}",
            folder=folder.folder,
            recipe=resolve(recipe),
            seeds=tuple(seeds),
            tags=tuple(info.get("tags", ())),
            step=step,
        )
        keys = {part.name: mark_key(part) for part in recipe.train.trackers}
        self._workers = [
            _Worker(name, keys.get(name, name), tracker, run, marks, self._messages)
            for name, tracker in trackers.items()
        ]
        for worker in self._workers:
            worker.thread.start()

    def log(self, results: Results) -> None:
        """Hands over the results of a chunk."""
        for worker in self._workers:
            worker.put(results)

    def warn(self, message: str) -> None:
        """Adds a warning, once in a run."""
        if message not in self._warned:
            self._warned.add(message)
            self._messages.append(message)

    def messages(self) -> Iterator[str]:
        """Removes and yields the warnings of the trackers."""
        while self._messages:
            yield self._messages.popleft()

    def finish(
        self, step: int, is_stop_requested: Callable[[], bool] = lambda: False
    ) -> None:
        """Ends the trackers, and waits for them, but not forever.

        A request to stop ends the wait.
        """
        for worker in self._workers:
            worker.end(self.status, step)
        deadline = time.monotonic() + _PATIENCE
        for worker in self._workers:
            ending = _join(worker.thread, deadline, is_stop_requested)
            if ending:
                self._messages.append(
                    f"tracker {quote(worker.name)} has not finished {ending}: the run "
                    "ends without it"
                )
        self._workers = []


def _join(
    thread: threading.Thread, deadline: float, is_stop_requested: Callable[[], bool]
) -> str:
    """Waits for a thread; returns what has ended the wait, "" if the thread has."""
    while True:
        thread.join(min(_POLL, max(0.0, deadline - time.monotonic())))
        if not thread.is_alive():
            return ""
        if is_stop_requested():
            return "before a request to stop"
        if time.monotonic() >= deadline:
            return f"within {_PATIENCE:g} s"


class ResultsQueue:
    """The results that wait for a tracker, in order.

    Beyond `MAX_BYTES`, the oldest results lose their histograms.
    """

    def __init__(self) -> None:
        self._results: deque[Results] = deque()
        self._has_changed = threading.Condition()
        self._rows = 0
        self._is_ended = False

    def put(self, results: Results) -> bool:
        """Adds results, without waiting; False if too many rows wait already."""
        with self._has_changed:
            if self._results and self._rows + len(results.rows) > MAX_ROWS:
                return False
            self._results.append(results)
            self._rows += len(results.rows)
            if results.histograms:
                self._limit_histograms()
            self._has_changed.notify()
            return True

    def end(self) -> None:
        """Makes `get` return None after the results that wait."""
        with self._has_changed:
            self._is_ended = True
            self._has_changed.notify()

    def get(self) -> Results | None:
        """Waits for results, and removes them; None if there will be no more."""
        with self._has_changed:
            self._has_changed.wait_for(lambda: self._results or self._is_ended)
            if not self._results:
                return None
            results = self._results.popleft()
            self._rows -= len(results.rows)
            return results

    def clear(self) -> None:
        """Removes all results."""
        with self._has_changed:
            self._results.clear()
            self._rows = 0

    @property
    def is_empty(self) -> bool:
        """Whether no results wait."""
        return not self._results

    def _limit_histograms(self) -> None:
        """Removes the oldest histograms beyond `MAX_BYTES`, but not the newest."""
        room = MAX_BYTES
        for index in reversed(range(len(self._results))):
            results = self._results[index]
            room -= _histogram_bytes(results)
            if room < 0 and index < len(self._results) - 1:
                self._results[index] = results._replace(histograms=())


def _histogram_bytes(results: Results) -> int:
    return sum(values.nbytes for seed in results.histograms for values in seed.values())


class _Worker:
    """A tracker, its thread, and the results that wait for it.

    If too many wait, the tracker later gets their rows from `metrics.jsonl`, without
    histograms and films.
    """

    def __init__(
        self,
        name: str,
        key: str,
        tracker: Tracker,
        run: TrackedRun,
        marks: Marks,
        messages: deque[str],
    ) -> None:
        """`key` is that of the tracker in `marks`; adds warnings to `messages`."""
        self.name = name
        self._key = key
        self.thread = threading.Thread(target=self._run, daemon=True)
        self._tracker = tracker
        self._last_step = marks.step(key)  # that the tracker has
        self._resume_step = self._newest_step = run.step  # in `metrics.jsonl`
        # Its own recipe, which the tracker may change in place.
        recipe = copy.deepcopy(run.recipe)
        self._tracked_run = run._replace(recipe=recipe, step=self._last_step)
        self._marks = marks
        self._messages = messages
        self._queue = ResultsQueue()
        self._is_behind = False  # whether results did not fit into the queue
        self._end = ("", 0)

    def put(self, results: Results) -> None:
        """Hands over results; never waits."""
        if not self.thread.is_alive() or not results.rows:
            return
        self._newest_step = results.rows[-1]["T"]
        if self._is_behind:  # it will read the rows, in order
            return
        if not self._tracker.takes_histograms:
            results = results._replace(histograms=())
        self._is_behind = not self._queue.put(results)

    def end(self, status: str, step: int) -> None:
        """Asks the tracker to finish after the results that wait for it."""
        self._end = (status, step)
        self._queue.end()

    def _run(self) -> None:
        try:
            session = self._tracker.start(self._tracked_run)
            self._follow(session)
            status, step = self._end
            self._tracker.finish(session, status)
            self._marks.set_step(self._key, max(step, self._last_step))
        except (Exception, SystemExit) as error:  # noqa: BLE001  # code of others
            self._queue.clear()
            is_known = isinstance(error, RlcliError)
            reason = error.message if is_known else plugins.reason(error)
            self._messages.append(
                f"tracker {quote(self.name)} failed: {reason}; the run continues "
                "without it"
            )

    def _follow(self, session: Any) -> None:
        """Hands over all results until the run ends."""
        self._catch_up(session, self._resume_step)
        while (results := self._queue.get()) is not None:
            self._log(session, results)
            if self._is_behind and self._queue.is_empty:
                self._is_behind = False  # first: what comes now waits in the queue
                self._catch_up(session, self._newest_step)
        if self._is_behind:
            self._catch_up(session, self._newest_step)

    def _catch_up(self, session: Any, newest: int) -> None:
        """Hands over the rows in `metrics.jsonl` up to a step; later ones may grow."""
        if self._last_step < newest:
            rows = read_metrics(self._tracked_run.folder)
            self._log(session, Results([row for row in rows if row["T"] <= newest]))

    def _log(self, session: Any, results: Results) -> None:
        rows = [row for row in results.rows if row["T"] > self._last_step]
        if not rows:  # the tracker has them, for example from before a resume
            return
        records: list[Record] = [*make_records(results._replace(rows=rows))]
        self._tracker.log(session, records)
        self._last_step = records[-1].step
        self._marks.set_step(self._key, self._last_step)
