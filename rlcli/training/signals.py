"""Signals: how a run is asked to stop, and does so after a checkpoint."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

_NAMES = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Signals:
    """While entered, the first Ctrl-C or SIGTERM is only noted, in `caught`.

    A second one acts as ever: at once. Outside the main thread, where Python lets
    nobody handle signals, nothing is caught.
    """

    def __init__(self) -> None:
        self.caught = ""  # the status that the signal gives a run
        self._before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in _NAMES:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type] # what it gave us

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.caught:
            self.__exit__(None, None, None)
            signal.raise_signal(number)
        self.caught = _NAMES[signal.Signals(number)]
