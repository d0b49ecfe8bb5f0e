"""Settings of the process are restored when the contexts of several threads overlap."""

import os
import resource
import threading

import pytest

from rlcli.xla.machine import limit_allocations
from rlcli.xla.threads import pin_threads


def enter_in_another_thread(make_context):
    """Enters a context in a thread; returns a function that ends it there."""
    is_inside, is_over = threading.Event(), threading.Event()

    def run():
        with make_context():
            is_inside.set()
            is_over.wait()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    is_inside.wait()

    def leave():
        is_over.set()
        thread.join()

    return leave


def data_limit():
    return resource.getrlimit(resource.RLIMIT_DATA)


@pytest.mark.parametrize(
    ("make_context", "read"),
    [
        (limit_allocations, data_limit),
        pytest.param(
            pin_threads,
            lambda: os.sched_getaffinity(0),
            marks=pytest.mark.skipif(
                not hasattr(os, "sched_getaffinity"), reason="only of Linux"
            ),
        ),
    ],
)
def test_the_last_of_overlapping_contexts_restores_the_setting_of_before(
    make_context, read
):
    before = read()
    leave_first = enter_in_another_thread(make_context)
    inside = read()
    leave_second = enter_in_another_thread(make_context)
    leave_first()
    assert read() == inside
    leave_second()
    assert read() == before
    with pytest.raises(KeyError), make_context():
        raise KeyError
    assert read() == before
