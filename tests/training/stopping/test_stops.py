"""Stops: a signal stops the program that called a function, not only the function."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import rlcli
from rlcli.runs.run_folder import Run
from rlcli.training.run_writer import RunWriter
from rlcli.training.stopping import signals
from rlcli.training.stopping.signals import Signals
from rlcli.training.stopping.stops import Stop

LAKE = {
    "environment": "FrozenLake-v1",
    "updater": "q_learning",
    "train": {"steps": 10**9, "evaluate": None},
}
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@pytest.fixture(autouse=True)
def handlers():
    """Python's own handlers, which a shell's background takes away."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    for number in NUMBERS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def signal_after_a_chunk(monkeypatch):
    """Sends a signal to this process after the first chunk of a run."""

    def prepare(number):
        record = RunWriter.record

        def record_and_signal(self, *arguments):
            monkeypatch.setattr(RunWriter, "record", record)
            record(self, *arguments)
            signal.raise_signal(number)

        monkeypatch.setattr(RunWriter, "record", record_and_signal)

    return prepare


def status(run):
    return json.loads((run / "run.json").read_text())["status"]


@pytest.mark.parametrize(
    ("number", "kind", "code", "name"),
    [
        (signal.SIGINT, KeyboardInterrupt, None, "interrupted"),
        (signal.SIGTERM, SystemExit, 143, "terminated"),
        (signal.SIGHUP, SystemExit, 129, "hung_up"),
    ],
)
@pytest.mark.slow
def test_train_and_resume_raise_what_the_signal_means_after_the_checkpoint(
    number, kind, code, name, signal_after_a_chunk, tmp_path
):
    run = tmp_path / "run"
    for train in (
        lambda: rlcli.train(LAKE, run=run, quiet=True),
        lambda: rlcli.resume(run, quiet=True),
    ):
        signal_after_a_chunk(number)
        with pytest.raises(kind) as caught:
            train()
        assert type(caught.value) is kind  # Python ends itself with SIGINT for no other
        assert getattr(caught.value, "code", None) == code
        assert vars(caught.value)["run"] == run == vars(caught.value)["result"]
        (note,) = caught.value.__notes__
        assert f"`{run}`: {name} at step" in note and f"resume {run}`" in note
        assert status(run) == name
        assert Run(run).latest_checkpoint() is not None
    assert [signal.getsignal(each) for each in NUMBERS[1:]] == [signal.SIG_DFL] * 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
def test_a_loop_over_chunks_ends_with_the_exception(tmp_path):
    steps = []
    with pytest.raises(SystemExit) as caught:
        for chunk in rlcli.chunks(LAKE, run=tmp_path / "run", quiet=True):
            steps.append(chunk.step)
            signal.raise_signal(signal.SIGTERM)
    assert len(steps) == 1
    assert caught.value.code == 143
    assert status(vars(caught.value)["run"]) == "terminated"


@pytest.mark.slow
def test_a_signal_during_the_last_chunk_is_not_lost(signal_after_a_chunk, tmp_path):
    recipe = LAKE | {"train": {"steps": 1, "unroll": 1, "evaluate": None}}
    signal_after_a_chunk(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught:
        rlcli.train(recipe, run=tmp_path / "run", quiet=True)
    assert status(vars(caught.value)["run"]) == "finished"


@pytest.mark.slow
def test_an_error_that_a_script_would_catch_does_not_hide_a_signal(
    monkeypatch, tmp_path
):
    def fail(self, *arguments):
        signal.raise_signal(signal.SIGTERM)
        raise rlcli.RlcliError("the simulator has ended")

    monkeypatch.setattr(RunWriter, "record", fail)
    with pytest.raises(SystemExit) as caught:
        rlcli.train(LAKE, run=tmp_path / "run", quiet=True)
    assert "the simulator has ended" in caught.value.__notes__[0]


@pytest.mark.slow
def test_in_a_notebook_the_interrupt_button_ends_the_function_only(
    signal_after_a_chunk, monkeypatch, tmp_path
):
    monkeypatch.setattr(signals, "is_notebook", lambda: True)
    signal_after_a_chunk(signal.SIGINT)
    run = rlcli.train(LAKE, run=tmp_path / "run", quiet=True)
    assert status(run) == "interrupted"
    signal_after_a_chunk(signal.SIGTERM)  # the kernel is to end
    with pytest.raises(SystemExit):
        rlcli.resume(run, quiet=True)


@pytest.mark.slow
def test_a_handler_of_the_user_is_called_after_the_checkpoint_and_may_raise(
    signal_after_a_chunk, tmp_path
):
    run, calls = tmp_path / "run", []

    def own(number, frame):
        calls.append((number, status(run)))
        if len(calls) == 2:
            raise ValueError("mine")

    signal.signal(signal.SIGTERM, own)
    signal_after_a_chunk(signal.SIGTERM)
    with pytest.raises(SystemExit):  # it returned, but the run has not finished
        rlcli.train(LAKE, run=run, quiet=True)
    assert signal.getsignal(signal.SIGTERM) is own
    signal_after_a_chunk(signal.SIGTERM)
    with pytest.raises(ValueError, match="mine") as caught:
        rlcli.resume(run, quiet=True)
    assert vars(caught.value)["run"] == run
    assert calls == [(signal.SIGTERM, "terminated")] * 2


def test_contexts_that_end_in_another_order_restore_the_first_handlers():
    first, second = Signals(), Signals()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    os.kill(os.getpid(), signal.SIGTERM)
    assert (first.status, second.status) == ("", "terminated")
    second.__exit__(None, None, None)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.slow
def test_a_program_with_several_runs_gets_a_signal_once(tmp_path):
    chunks = [
        rlcli.chunks(LAKE, run=tmp_path / name, quiet=True) for name in ("a", "b")
    ]
    for each in chunks:
        next(each)
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        next(chunks[0])
    chunks[1].close()
    time.sleep(1)  # no second KeyboardInterrupt
    assert [status(tmp_path / name) for name in "ab"] == ["interrupted", "stopped"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_run_leaves_the_signals_of_the_others_to_them(number, tmp_path):
    stop = Stop(tmp_path, lambda: tmp_path, lambda: "")
    calls = []
    signal.signal(number, lambda *_: calls.append(number))
    with Signals(stop=stop) as outer:
        with pytest.raises(BaseException) as raised, Signals(stop=stop):
            signal.raise_signal(number)
        assert isinstance(raised.value, KeyboardInterrupt | SystemExit)
        assert outer.status and calls == [number]
        assert signal.getsignal(number) is signals._dispatch  # `outer` still gets them


def test_a_handler_that_an_environment_installs_meanwhile_stays():
    def own(number, frame):
        pass

    with Signals():
        signal.signal(signal.SIGTERM, own)
    assert signal.getsignal(signal.SIGTERM) is own


def test_a_context_that_another_thread_ends_lets_later_signals_through():
    context = Signals()
    context.__enter__()
    thread = threading.Thread(target=context.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
def test_leaving_a_loop_over_chunks_does_not_lose_a_signal(tmp_path):
    def train():
        for _ in rlcli.chunks(LAKE, run=tmp_path / "run", quiet=True):
            signal.raise_signal(signal.SIGINT)
            break
        time.sleep(10)

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        train()
    assert time.monotonic() - start < 10
    assert status(tmp_path / "run") == "stopped"


JOB = """
import sys, rlcli
recipe = {"environment": "FrozenLake-v1", "updater": "q_learning"}
recipe |= {"train": {"steps": 10**9, "evaluate": None}}
for seed in (0, 1):
    folder = rlcli.train(recipe, run=f"run{seed}", seed=seed, quiet=True)
    print("trained", folder, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_a_script_ends_and_does_not_begin_its_next_training(number, code, tmp_path):
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    program += "signal.signal(signal.SIGHUP, signal.SIG_DFL)" + JOB
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = tmp_path / "run0/metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (code, "")
    assert not (tmp_path / "run1").exists()
    assert [*(tmp_path / "run0/checkpoints").iterdir()]
    if number == signal.SIGINT:
        assert "rlcli resume" in err or "-m rlcli resume" in err
