"""The picture of a run, as text."""

import io
import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from rlcli.monitor import panel, seeds_table
from rlcli.monitor.panel import RunPanel
from rlcli.monitor.seeds_table import BoundedSeries, sparkline

SNAPSHOTS = Path(__file__).parent / "snapshots"


def draw_panel(picture, width=80, height=40):
    console = Console(file=io.StringIO(), width=width, height=height, record=True)
    console.print(picture.draw(console))
    return console.export_text()


def row(step, seed=0, **more):
    common = {"T": step, "seed": seed, "ep": 102, "G": 200.0, "t": 200, "avg_G": 195.0}
    clock = {"dt": 1.512, "steps_per_second": 50812.3, "updates_per_second": 2.0}
    return common | {"loss": 0.12345, "policy.epsilon": 0.05} | clock | more


def result(step, seed, mean):
    spread = {"mean": mean, "std": 0.0, "min": mean, "max": mean, "episodes": 20}
    return {"T": step, "seed": seed, "evaluation": spread}


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("seeds", [1, 8, 20])
def test_every_line_leaves_the_terminal_room_for_two_characters(width, seeds):
    picture = RunPanel(50_000, range(seeds), "dqn_cartpole")
    for T in range(1000, 20_000, 1000):
        results = [result(T, seed, float(seed)) for seed in range(seeds)]
        rows = [row(T, seed, avg_G=T + 1.5 * seed) for seed in range(seeds)]
        picture.add(rows, T, results)
    assert {len(each) for each in draw_panel(picture, width).splitlines()} == {
        width - 2
    }


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("seeds", [1, 8, 20])
def test_an_evaluation_is_shown_to_its_end_in_any_terminal(width, seeds):
    picture = RunPanel(50_000, range(seeds), "dqn_cartpole")
    results = [result(10_000, seed, 446.3 + seed) for seed in range(seeds)]
    picture.add([row(10_000, seed) for seed in range(seeds)], 10_000, results)
    text = " ".join(draw_panel(picture, width).replace("│", " ").split())
    assert "20 episodes" in text and "at step 10,000" in text


def test_before_the_first_numbers_the_panel_says_that_it_compiles():
    text = draw_panel(RunPanel(50_000, [0], "dqn_cartpole"))
    assert "dqn_cartpole" in text
    assert "0 of 50,000 steps" in text
    assert "compiling …" in text
    assert "Ctrl-C saves and stops" in text
    text = draw_panel(RunPanel(0, [], "dqn_cartpole"))
    assert "steps" not in text and "0:00 elapsed" in text


def test_the_panel_of_one_seed_shows_what_the_rows_say():
    picture = RunPanel(50_000, [0], "dqn_cartpole")
    picture.add([row(10_000, avg_G=5.0)], 10_000, [])
    picture.add([row(20_000)], 20_500, [result(20_000, 0, 150.0)])
    text = re.sub(r"\s+", " ", draw_panel(picture))
    for part in ["41 %", "20,500 of 50,000", "ep 102", "T 20,500", "t 200", "G 200"]:
        assert part in text
    for part in [
        "dt 1.51 ms",
        "steps/s 50,812",
        "updates/s 2",
        "loss 0.1",
    ]:
        assert part in text
    assert "avg_G 195 ▁█ 5 to 195" in text
    assert "G 150 ± 0 (95 % over 20 episodes), 150 to 150 at step 20,000" in text


def test_the_panel_of_a_few_seeds_has_a_line_for_each():
    picture = RunPanel(50_000, range(2), "ppo")
    rows = [row(10, 0, avg_G=10.0), row(10, 1, avg_G=30.0, frozen="nan in `loss`")]
    picture.add(rows, 10, [result(10, 0, 7.0), result(10, 1, 9.0)])
    lines = [re.sub(r"[\s│]+", " ", each) for each in draw_panel(picture).splitlines()]
    assert " 0 102 200 200 10 7 ▁ " in lines
    assert " 1 102 200 200 30 9 frozen: nan in `loss` " in lines
    assert " mean 102 200 200 10 8 ▁ " in lines  # a frozen seed has no say


@pytest.mark.parametrize(("seeds", "height"), [(20, 50), (6, 10)])
def test_the_panel_of_many_seeds_shows_how_far_they_lie_apart(seeds, height):
    picture = RunPanel(50_000, range(seeds), "ppo")
    rows = [row(10, seed, avg_G=100.0 + seed) for seed in range(seeds)]
    picture.add([*rows[:-1], rows[-1] | {"frozen": True}], 10, [])
    text = draw_panel(picture, height=height)
    assert len(text.splitlines()) <= 20
    lines = [re.sub(r"[\s│]+", " ", each) for each in text.splitlines()]
    assert " min 102 200 200 100 " in lines
    assert f" max 102 200 200 {98 + seeds} frozen: {seeds - 1} " in lines


def test_the_time_left_follows_the_pace_since_the_first_steps(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(panel.time, "time", lambda: now[0])
    picture = RunPanel(50_000, [0], "dqn", start=10_000)
    now[0] += 30.0  # the compiler
    picture.add([row(11_000)], 11_000, [])
    assert "0:30 elapsed │" in draw_panel(picture)
    now[0] += 10.0
    picture.add([row(12_000)], 12_000, [])  # 100 steps a second from now on
    assert "0:40 elapsed, 6:20 left" in draw_panel(picture)
    now[0] += 7200.0
    picture.is_finished = True
    assert "2:00:40 elapsed │" in draw_panel(picture)


def one_seed():
    picture = RunPanel(50_000, [0], "dqn_cartpole")
    for T in range(1000, 20_000, 1000):
        rows = [row(T, avg_G=T / 100, q=12.5, td_error=0.25, gradient_norm=1.5)]
        picture.add(rows, T, [result(T, 0, T / 50)] if T % 5000 == 0 else [])
    return picture


def eight_seeds():
    picture = RunPanel(50_000, range(8), "ppo_cartpole")
    for T in range(1000, 20_000, 1000):
        rows = [row(T, seed, avg_G=T / 100 + 9 * seed) for seed in range(8)]
        rows[3] |= {"frozen": "the loss is not finite"} if T > 9000 else {}
        picture.add(rows, T, [])
    return picture


def thirty_seeds():
    picture = RunPanel(50_000, range(30), "sac_pendulum")
    for T in range(1000, 20_000, 1000):
        rows = [row(T, seed, avg_G=seed - T / 100) for seed in range(30)]
        results = [result(T, seed, float(seed)) for seed in range(30)]
        picture.add(rows, T, results)
    return picture


def several_runs():
    """Runs that are trained together, one of which has failed."""
    names = [
        f"learning_rate={rate},capacity=[{n}]" for rate in (1e-4, 0.01) for n in (1, 2)
    ]
    picture = RunPanel(50_000, names, "dqn_cartpole")
    for T in range(1000, 20_000, 1000):
        rows = [row(T, run=run, avg_G=T / 100 * n) for n, run in enumerate(names)]
        rows[2] |= {"frozen": "all seeds are frozen: seed 0: the loss is not finite"}
        results = [result(T, 0, 9.0 * n) | {"run": run} for n, run in enumerate(names)]
        picture.add(rows, T, results)
    return picture


def no_episodes():
    """Rows before the end of the first episode have no return."""
    picture = RunPanel(50_000, [0], "dqn_pong")
    fields = {"T": 1000, "seed": 0, "ep": 0, "loss": 0.5}  # of the first chunk
    picture.add([fields], 1000, [])
    return picture


def compiling():
    return RunPanel(50_000, [0], "dqn_cartpole")


def stopping():
    picture = one_seed()
    picture.is_stopping = True
    return picture


PICTURES = (one_seed, eight_seeds, thirty_seeds, several_runs, no_episodes)
PICTURES += (compiling, stopping)


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 40)])
@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("colour", ["", "_colour"])
def test_the_panel_looks_as_it_did(picture, size, colour, monkeypatch):
    """UPDATE_SNAPSHOTS=1 writes the files: look at them before they are committed."""
    if colour and size != (80, 24):
        pytest.skip("the colours do not depend on the size")
    monkeypatch.setattr(panel.time, "time", lambda: 100.0)
    file = io.StringIO()
    console = Console(
        file=file,
        width=size[0],
        height=size[1],
        force_terminal=bool(colour),
        color_system="standard" if colour else None,
        legacy_windows=False,
        _environ={},
    )
    console.print(picture().draw(console))
    text = file.getvalue().replace("\x1b", "␛")
    path = SNAPSHOTS / f"{picture.__name__}_{size[0]}x{size[1]}{colour}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


SIZES = [(30, 8), (40, 10), (50, 6), (60, 15), (79, 20), (80, 24), (120, 40), (200, 9)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("picture", PICTURES)
def test_the_panel_fits_in_any_terminal_and_shows_the_returns(picture, size):
    run = picture()
    for width, height in [(120, 40), size]:  # the terminal was resized
        lines = draw_panel(run, width, height).splitlines()
    assert {len(line) for line in lines} == {size[0] - 2}
    is_table = len(run.seeds) > 1
    assert len(lines) < size[1] or (is_table and size[1] < 10)
    if picture in (one_seed, eight_seeds, thirty_seeds):
        assert "avg_G" in "".join(lines)


def test_the_bar_goes_first_then_the_rates_the_metrics_and_the_counts():
    parts = {
        "bar": "steps  ",
        "rates": "steps/s",
        "metrics": "loss",
        "counts": "ep 102",
    }
    gone = []
    for height in range(40, 4, -1):
        text = draw_panel(one_seed(), 80, height)
        gone += [name for name in parts if parts[name] not in text and name not in gone]
        assert "avg_G" in text and "190" in text
        if "bar" in gone:
            assert "dqn_cartpole · 38 %" in text
    assert gone == ["bar", "rates", "metrics", "counts"]


def test_a_column_without_numbers_is_not_shown():
    text = draw_panel(eight_seeds())
    assert "evaluation" not in text and "–" not in text
    assert "evaluation" in draw_panel(thirty_seeds())
    text = draw_panel(no_episodes())
    assert "ep 0" in text and " G " not in text.replace("G return", "")
    assert "avg_G  " not in text


def test_the_letters_are_explained_once():
    text = re.sub(r"[\s│]+", " ", draw_panel(one_seed()))
    legend = "T steps · G return of the last episode"
    assert text.count(legend) == 1


def test_what_a_user_named_is_no_markup():
    picture = RunPanel(10, [0], "[red]dqn[/red]")
    picture.add([row(1) | {"[bold]": 1.0}], 1, [])
    assert "[red]dqn[/red]" in draw_panel(picture)
    assert "[bold]" in draw_panel(picture)


def test_a_name_is_cut_only_where_there_is_no_room():
    picture = RunPanel(10, [0], "dqn")
    picture.add([row(1, a_name_of_which_there_is_no_end=0.125)], 1, [])
    assert "a name of which there is no end 0.125" in draw_panel(picture, 60)
    assert "a name of which ther… 0.125" in draw_panel(picture, 34)


def test_names_and_numbers_stand_in_as_many_columns_as_fit():
    pairs = [("a", "1"), ("a_longer_name", "2"), ("b", "3"), ("c", "1,234,567")]
    lines = [text.plain for text in seeds_table.format_cells(pairs, 34)]
    assert lines == ["a 1       a_longer_name 2", "b 3       c             1,234,567"]
    assert len(seeds_table.format_cells(pairs, 60)) == 1
    assert len(seeds_table.format_cells(pairs, 20)) == 4


def test_totals_and_maxima_of_info_are_left_to_the_files():
    picture = RunPanel(50_000, [0], "dqn")
    info = {"success": 1.0, "total_success": 8.0, "max_success": 1.0, "max_q": 9.5}
    picture.add([row(1_000) | info], 1_000, [])
    text = draw_panel(picture)
    assert "success" in text and "total" not in text and "max success" not in text
    assert "max q" in text


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([0, 0, 7, 7], 2, "▁█"),
        ([0, 7], 80, "▁█"),
        ([3, 3, 3], 80, "▁▁▁"),
        ([0, float("nan"), 7], 80, "▁█"),
        ([], 80, ""),
        ([1], 0, ""),
        ([1], -5, ""),
    ],
)
def test_a_sparkline_reaches_from_the_lowest_to_the_highest(values, width, expected):
    assert sparkline(values, width) == expected


def test_a_long_curve_keeps_its_shape_in_little_memory():
    curve = BoundedSeries()
    for point in range(100_000):
        curve.add(float(point))
    assert len(curve.points) <= seeds_table.POINTS
    assert sparkline(curve.points, 8) == "▁▂▃▄▅▆▇█"
    gaps = {after - before for before, after in pairwise(curve.points)}
    assert gaps == {256.0}


def test_the_clock_of_another_process_begins_and_ends_with_it(monkeypatch):
    monkeypatch.setattr(panel.time, "time", lambda: 1_100.0)
    picture = RunPanel(1_000, [0], "dqn", start=100, start_time=1_000.0, hint="Go on")
    # Nothing of an earlier process says anything about the speed of this one.
    picture.add([], 25, [result(25, 0, 1.0)])
    picture.add([row(50, time=10.0), row(200, time=1_020.0)], 200, [])
    assert "1:40 elapsed" in draw_panel(picture)
    picture.add([row(300, time=1_100.0)], 300, [])
    text = draw_panel(picture)
    assert "1:40 elapsed, 9:20 left" in text  # 100 steps in 80 s, 700 to go
    assert "Go on" in text
    picture.end_time, picture.is_finished = 1_060.0, True
    text = draw_panel(picture)
    assert "1:00 elapsed " in text
    assert "Go on" not in text
