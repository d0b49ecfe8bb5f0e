"""The phases of a program: what JAX reports while it traces and compiles."""

import threading

import jax
import numpy as np
import pytest

from rlcli.errors import RlcliError
from rlcli.training.session import (
    _close_unfinished,
    close_at_exit,
    report_compilation,
)


def test_tracing_compiling_and_running_follow_each_other():
    phases = []

    @jax.jit
    def program(x):
        return x @ x + jax.jit(lambda y: y * 2.5)(x)

    with report_compilation(phases.append):
        program(np.ones((3, 3), np.float32))
        first = [*phases]
        program(np.ones((3, 3), np.float32))
    assert [*dict.fromkeys(first)] == ["tracing", "compiling", "running"]
    assert first[-1] == "running"
    assert phases == first  # a compiled program reports nothing
    with report_compilation(phases.append):
        pass
    program(np.ones((5, 5), np.float32))
    assert phases == first  # nor does anything after the context


def test_at_exit_all_runs_end_also_if_one_of_them_cannot():
    ended, is_running, is_over = [], threading.Event(), threading.Event()

    def run(name):
        try:
            yield
            is_running.set()
            is_over.wait()
            yield
        finally:
            ended.append(name)
            if name == "fails":
                raise RlcliError("the disk is full")

    runs = [run(name) for name in ("fails", "runs elsewhere", "ends")]
    for each in runs:
        next(each)
        close_at_exit(each)
    thread = threading.Thread(target=lambda: next(runs[1]), daemon=True)
    thread.start()
    is_running.wait()
    with pytest.raises(RlcliError, match="disk is full"):
        _close_unfinished()
    assert sorted(ended) == ["ends", "fails"]
    is_over.set()
    thread.join()
