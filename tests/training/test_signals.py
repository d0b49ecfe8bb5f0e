"""Signals: the first one is noted, the second one acts."""

import os
import signal
import threading

import pytest

from rlcli.training.signals import Signals


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")],
)
def test_the_first_signal_is_noted_and_gives_the_run_its_status(number, status):
    with Signals() as signals:
        assert signals.caught == ""
        os.kill(os.getpid(), number)
        assert signals.caught == status


@pytest.fixture
def interruptible():
    """Python's own answer to Ctrl-C, which a shell's background takes away."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_acts_at_once():
    with pytest.raises(KeyboardInterrupt), Signals() as signals:
        signal.raise_signal(signal.SIGINT)
        assert signals.caught == "interrupted"
        signal.raise_signal(signal.SIGINT)


def test_the_handlers_of_before_are_back_afterwards():
    def own(number, frame):
        raise AssertionError("never called")

    before = {number: signal.getsignal(number) for number in (2, 15)}
    signal.signal(signal.SIGTERM, own)
    try:
        with Signals():
            assert signal.getsignal(signal.SIGTERM) is not own
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before[15])
    assert signal.getsignal(signal.SIGINT) is before[2]


def test_outside_the_main_thread_nothing_is_caught_and_nothing_fails():
    seen = []

    def enter():
        with Signals() as signals:
            seen.append((signals.caught, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [("", signal.getsignal(signal.SIGTERM))]
