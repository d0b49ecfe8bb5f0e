"""Pinning: all threads on one core, temporarily."""

import os
import threading

import pytest

from rlcli.xla.threads import pin_threads

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="only Linux says where threads may run"
)


def cores() -> list[set[int]]:
    return [os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")]


def test_threads_share_a_core_inside_the_block_only():
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    before = os.sched_getaffinity(0)
    try:
        with pytest.raises(KeyError), pin_threads():
            inside = cores()
            raise KeyError
        after = cores()
    finally:
        over.set()
        other.join()
    assert len(inside) >= 2
    assert len(set.union(*inside)) == 1
    assert set.union(*inside) <= before
    assert after == [before] * len(after)
