"""The table of comparisons, from calls whose seconds are known."""

import pytest

from benchmarks import __main__ as bench
from benchmarks import pairs


@pytest.fixture
def table(monkeypatch, capsys):
    """The lines that a comparison of loops prints, with a second per unit of time."""
    seconds = iter([9.0, 8.0, 7.0] + 3 * [1.0, 2.0, 0.5])

    def measure(loop):
        loop.advance(loop.steps)
        return next(seconds)

    monkeypatch.setattr(pairs, "measure", measure)
    calls = []
    loops = {
        name: pairs.Loop(lambda steps, name=name: calls.append((name, steps)), steps)
        for name, steps in (("rlcli", 3_000), ("slow", 100), ("fast", 7_500))
    }
    others = {name: loops[name] for name in ("slow", "fast")}
    pairs.compare("DQN", {"rlcli": loops["rlcli"]}, others, rounds=3)
    assert calls == 4 * [("rlcli", 3_000), ("slow", 100), ("fast", 7_500)]
    return capsys.readouterr().out.splitlines()


def test_the_first_call_of_a_loop_is_not_part_of_its_speed(table):
    assert "\n".join(table[:2]) == pairs.HEADER
    assert table[2:] == [
        "| DQN | rlcli | 3 000 | slow | 50 | 60.0 | 60.0 … 60.0 | 9.0 · 8.0 |",
        "| DQN | rlcli | 3 000 | fast | 15 000 | 0.200 | 0.200 … 0.200 | 9.0 · 7.0 |",
    ]


def test_the_rows_of_a_comparison_are_told_from_other_tables(table):
    rows = [bool(pairs.ROW.fullmatch(line)) for line in table]
    assert rows == [False, False, True, True]
    assert not pairs.ROW.fullmatch("| CartPole-v1 | 20.5 | 1.66 | 12.3 | 57.3 |")


def test_a_benchmark_that_fails_does_not_end_the_others(monkeypatch, capfd):
    monkeypatch.setattr(bench, "NAMES", ())
    assert bench.main(["first_missing PYTHON", "second_missing"]) == (
        "failed: first_missing, second_missing"
    )
    lines = capfd.readouterr().out.splitlines()
    assert {"== first_missing", "== second_missing"} < set(lines)
    assert "\n".join(lines[-2:]) == pairs.HEADER
