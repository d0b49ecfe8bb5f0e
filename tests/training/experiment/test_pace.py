"""The length of chunks follows what iterations cost."""

import pytest

from rlcli.training.experiment.pace import SLOW, TARGET, Pace


def run(pace, cost, updates, total):
    """The chunks of a run whose iterations cost `cost(iteration)` seconds."""
    done, chunks = 0, []
    while done < total:
        size = min(pace.size(done), total - done)
        seconds = sum(map(cost, range(done, done + size)))
        pace.measure(done, size, seconds)
        chunks.append((size, seconds))
        done += size
    return chunks


def test_chunks_grow_from_one_iteration_to_the_target():
    pace = Pace(lambda i: i, 100_000)
    chunks = run(pace, lambda i: 1e-4, None, 100_000)
    sizes = [size for size, _ in chunks]
    assert sizes[:5] == [1, 1, 8, 64, 512]
    assert max(sizes) == pytest.approx(TARGET / 1e-4, rel=0.01)
    assert len(sizes) < 30


def test_the_first_iteration_that_learns_is_a_chunk_of_its_own():
    """Steps take a microsecond, an iteration that learns takes seconds."""
    start = 50_000

    def updates(i):
        return 100_000 * max(i - start, 0)

    def cost(i):
        return 3.0 if i >= start else 1e-6

    pace = Pace(updates, start + 5)
    chunks = run(pace, cost, updates, start + 5)
    assert max(seconds for _, seconds in chunks) == 3.0
    assert [size for size, _ in chunks[-5:]] == [1] * 5
    assert pace.is_slow


def test_an_iteration_in_four_learns():
    pace = Pace(lambda i: max(i - 100, 0) // 4, 10_000)
    chunks = run(pace, lambda i: 1e-3, None, 10_000)
    assert max(seconds for _, seconds in chunks) <= TARGET + 1e-6
    assert len(chunks) < 40
    assert not pace.is_slow


def test_a_chunk_that_a_period_cuts_short_does_not_shrink_the_next():
    pace = Pace(lambda i: i, 10**9)
    done = 0
    for _ in range(10):
        size = pace.size(done)
        pace.measure(done, size, size * 1e-4)
        done += size
    before = pace.size(done)
    pace.measure(done, 1, 2e-3)  # of which all but 0.1 ms is the chunk's own cost
    assert pace.size(done + 1) == before


def test_chunks_shrink_with_the_speed():
    pace = Pace(lambda i: i, 10**9)
    for _ in range(8):
        pace.measure(0, pace.size(0), pace.size(0) * 1e-4)
    pace.measure(0, pace.size(0), 100 * pace.size(0) * 1e-4)
    assert pace.size(0) * 1e-2 == pytest.approx(TARGET)
    assert not pace.is_slow
    pace.measure(0, 1, 2 * SLOW)
    assert pace.is_slow
