"""Signals: the first one is a request, the second one ends the process."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from rlcli.training.stopping.signals import Signals


@pytest.fixture(autouse=True)
def hangup():
    """The default action of SIGHUP, which `nohup` takes away."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, "interrupted"),
        (signal.SIGTERM, "terminated"),
        (signal.SIGHUP, "hung_up"),
    ],
)
def test_the_first_signal_is_a_request_and_gives_the_run_its_status(number, status):
    with Signals() as signals:
        assert signals.status == "" and not signals.is_stop_requested
        os.kill(os.getpid(), number)
        assert signals.status == status
        assert signals.is_stop_requested


def test_usr1_asks_for_one_checkpoint_and_not_for_an_end():
    with Signals() as signals:
        assert not signals.take_save_request()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signals.status == ""
        assert signals.take_save_request()
        assert not signals.take_save_request()


@pytest.fixture
def interruptible():
    """Python's own answer to Ctrl-C, which a shell's background takes away."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_in_the_process_of_another_program_a_second_ctrl_c_is_the_programs():
    with pytest.raises(KeyboardInterrupt), Signals(os._exit) as signals:
        signal.raise_signal(signal.SIGINT)
        assert signals.status == "interrupted"
        signal.raise_signal(signal.SIGINT)


def test_after_forgotten_requests_the_next_signal_is_a_first_one():
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        signals.forget_requests()
        assert signals.status == "" and not signals.is_stop_requested
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.status == "interrupted" and signals.is_stop_requested


def test_the_handlers_of_before_are_back_afterwards():
    def own(number, frame):
        raise AssertionError("never called")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGTERM, own)
    try:
        with Signals():
            assert signal.getsignal(signal.SIGTERM) is not own
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before[signal.SIGTERM])
    assert {number: signal.getsignal(number) for number in numbers} == before


def test_a_hangup_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.status == ""
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_nothing_is_caught_and_nothing_fails():
    seen = []

    def enter():
        with Signals() as signals:
            seen.append((signals.status, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [("", signal.getsignal(signal.SIGTERM))]


# A compiled program that runs for minutes: Python handles no signal meanwhile.
BUSY = """
    import os, sys, jax
    from rlcli.training.stopping import signals

    def abandon(status):
        os.write(1, status.encode())
        os._exit(7)

    spin = jax.jit(lambda n: jax.lax.fori_loop(0, n, lambda i, x: x * 1.1 + i, 0.5))
    spin(1).block_until_ready()
    owner = signals.own_process()
    owner.__enter__()
    with signals.Signals(abandon, patience=float(sys.argv[1])) as found:
        if sys.argv[2:] == ["answered"]:
            found.acknowledge()
        os.write(1, b"busy ")
        spin(2_000_000_000).block_until_ready()
    os.write(1, b"done")
"""


def busy(*arguments):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(BUSY), *arguments],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.read(5) == b"busy "
    time.sleep(0.3)
    return process


@pytest.mark.slow
def test_without_an_answer_the_process_ends_after_a_few_seconds():
    with busy("0.5") as process:
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20)[0] == b"terminated"
    assert process.returncode == 7
    assert 0.4 < time.monotonic() - start < 10


@pytest.mark.slow
def test_a_second_signal_ends_a_process_that_is_inside_of_xla():
    with busy("1000") as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20)[0] == b"interrupted"
    assert process.returncode == 7


@pytest.mark.slow
def test_a_run_that_acknowledges_may_take_its_time():
    with busy("0.2", "answered") as process:
        process.send_signal(signal.SIGTERM)
        time.sleep(1)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20)[0] == b"terminated"
