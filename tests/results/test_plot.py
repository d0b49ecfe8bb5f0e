"""Plot: curves over seeds, worked out by hand and by loops."""

import itertools
import sys

import numpy as np
import pytest
from folders import OTHER_RATE, RESOLVED, metric_rows, write_run
from tiers import quick_first
from wording import mentions

import rlcli
from rlcli.errors import RlcliError
from rlcli.registry.libraries import install_command
from rlcli.results import figure
from rlcli.results.chart import draw_chart, split_panels
from rlcli.runs.statistics import bootstrap_band, bootstrap_ci95, iqm


def write(folder, by_seed, metric="avg_G", **info):
    return write_run(folder, rows=metric_rows(by_seed, metric), **info)


def the_curve(*arguments, **options):
    (curve,) = rlcli.plot(*arguments, **options)["curves"]
    return curve


def test_seeds_that_log_at_equal_points_are_averaged_there(tmp_path):
    run = write(tmp_path / "a", {0: [(10, 1.0), (20, 3)], 1: [(10, 2.0), (20, 9)]})
    curve = the_curve(run)
    assert (curve["x"], curve["y"], curve["seeds"]) == ([10, 20], [1.5, 6.0], 2)
    assert curve["low"] == [1.0, 3.0] and curve["high"] == [2.0, 9.0]


def test_a_single_seed_has_no_band(tmp_path):
    curve = the_curve(write(tmp_path / "a", {4: [(10, 1.0), (20, 3.0)]}))
    assert curve["y"] == [1.0, 3.0]
    assert curve["low"] is curve["high"] is None


def test_the_interquartile_mean_and_its_band_are_those_of_every_point(tmp_path):
    values = np.random.default_rng(0).normal(size=(6, 4))
    by_seed = {s: list(enumerate(row.tolist(), 1)) for s, row in enumerate(values)}
    curve = the_curve(write(tmp_path / "a", by_seed), center="iqm")
    np.testing.assert_allclose(curve["y"], iqm(values, axis=0))
    band = np.transpose([curve["low"], curve["high"]])
    np.testing.assert_allclose(band, [bootstrap_ci95(row) for row in values.T])


def test_the_band_of_the_mean_is_that_of_a_loop_over_resamples():
    values = np.random.default_rng(1).normal(size=(5, 3))
    drawn = np.random.default_rng(0).integers(5, size=(2_000, 5))
    means = [np.sort(values, axis=0)[rows].mean(axis=0) for rows in drawn]
    expected = np.quantile(means, [0.025, 0.975], axis=0)
    band = bootstrap_band(values, "mean")
    np.testing.assert_allclose(band, expected)


def test_seeds_of_several_runs_are_interpolated_where_all_have_data(tmp_path):
    write(tmp_path / "a", {0: [(0, 0.0), (10, 10), (40, 40)]})
    write(tmp_path / "b", {1: [(5, 0.0), (25, 20), (50, 20)]})
    result = rlcli.plot(tmp_path)
    (curve,) = result["curves"]
    assert curve["x"] == [5, 10, 25, 40]
    np.testing.assert_allclose(curve["y"], [2.5, 7.5, 22.5, 30])
    assert "1 of 2 seeds end early" in "".join(result["notes"])


def test_a_group_has_a_curve_in_each_of_its_environments(tmp_path):
    """Returns of two tasks have no mean, though a group may have runs in both."""
    other = RESOLVED.replace("CartPole-v1", "Acrobot-v1")
    write(tmp_path / "a", {0: [(1, 10.0), (2, 20.0)]}, name="dqn")
    write(tmp_path / "b", {0: [(1, -9.0), (2, -7.0)]}, name="dqn", resolved=other)
    curves = rlcli.plot(tmp_path, group="name")["curves"]
    assert [(each["label"], each["environment"], each["y"]) for each in curves] == [
        ("dqn", "CartPole-v1", [10, 20]),
        ("dqn", "Acrobot-v1", [-9, -7]),
    ]


def test_a_seed_that_two_runs_have_counts_once_the_longest(tmp_path):
    short = write(tmp_path / "a", {0: [(1, 5.0), (2, 5.0)]})
    write(tmp_path / "b", {0: [(1, 7.0), (2, 7.0), (3, 7.0)], 1: [(1, 9.0), (3, 9.0)]})
    result = rlcli.plot(tmp_path)
    (curve,) = result["curves"]
    assert (curve["seeds"], curve["y"]) == (2, [8.0, 8.0, 8.0])
    assert f"1 seed of `{short}` left out" in result["notes"][0]


def test_of_two_equal_runs_the_newest_counts_for_every_x(tmp_path):
    for name, created, dt in (
        ("slow", "2026-11-20", 90.0),
        ("new", "2026-11-21", 10.0),
    ):
        rows = [{"T": 10, "seed": 0, "avg_G": 1.0, "dt": dt}]
        rows += [{"T": 20, "seed": 0, "avg_G": 1.0, "dt": dt}]
        write_run(tmp_path / name, rows=rows, created=created)
    for x in ("steps", "seconds"):
        (note,) = rlcli.plot(tmp_path, x=x, y="avg_G")["notes"]
        assert f"`{tmp_path / 'slow'}` left out" in note


def test_many_points_are_averaged_to_a_thousand(tmp_path):
    values = np.random.default_rng(0).normal(size=4_500)
    run = write(tmp_path / "a", {0: list(enumerate(values.tolist()))})
    curve = the_curve(run)
    np.testing.assert_allclose(curve["y"], values.reshape(900, 5).mean(axis=1))
    np.testing.assert_allclose(curve["x"], np.arange(900) * 5 + 2)


def test_evaluated_returns_come_first_where_all_runs_have_a_curve_of_them(tmp_path):
    rows = metric_rows({0: [(1, 1.0), (2, 2.0)]})
    rows += metric_rows({0: [(1, 5.0), (2, 6.0)]}, "evaluation.mean")
    run = write_run(tmp_path / "a", rows=rows)
    assert rlcli.plot(run)["y"] == "evaluation.mean"
    other = write(tmp_path / "b", {0: [(1, 1.0)]}, recipe="other")
    result = rlcli.plot([run, other])
    assert result["y"] == "avg_G"
    assert "1 of 2 runs have too few evaluations" in result["notes"][0]


def test_seconds_are_those_of_the_steps_without_pauses(tmp_path):
    rows = [
        {"T": 10, "seed": 0, "avg_G": 1.0, "dt": 100.0, "updates": 1},
        {"T": 30, "seed": 0, "avg_G": 2.0, "dt": 50.0, "updates": 5},
        {"T": 20, "seed": 0, "evaluation": {"mean": 4.0}},
        {"T": 30, "seed": 0, "evaluation": {"mean": 5.0}},
    ]
    run = write_run(tmp_path / "a", rows=rows)
    assert the_curve(run, x="seconds", y="avg_G")["x"] == [1.0, 2.0]
    assert the_curve(run, x="seconds")["x"] == [1.5, 2.0]
    assert the_curve(run, x="updates")["x"] == [3.0, 5.0]


@pytest.mark.parametrize(
    ("points", "threshold", "crossing"),
    [
        ([(10, 0.0), (20, 100.0)], 25, 12.5),
        ([(10, 0.0), (20, 100.0), (30, 0.0)], 50, 15),
        ([(10, 80.0), (20, 60.0)], 75, 12.5),
        ([(10, 0.0), (20, 100.0)], 101, None),
        ([(10, 50.0), (20, 60.0)], 50, None),
    ],
)
def test_the_first_crossing_is_interpolated(tmp_path, points, threshold, crossing):
    curve = the_curve(write(tmp_path / "a", {0: points}), threshold=threshold)
    assert curve["crossing"] == crossing


def test_values_that_are_not_finite_end_a_seed(tmp_path):
    points = [(1, 1.0), (2, 2.0), (3, None), (4, 1.7e308)]
    large = [(1, -1e100), (2, 1e100), (3, -1.7e308)]
    run = write(tmp_path / "a", {0: points, 1: large})
    for center in ("mean", "iqm"):
        result = rlcli.plot(run, center=center)
        assert result["curves"][0]["x"] == [1, 2]
        assert "seeds" in draw_chart(result, 80).plain


def test_seeds_without_values_are_noted(tmp_path):
    curves = {0: [(1, 1.0), (2, 2.0)], 1: [(1, None), (2, None)]}
    run = write(tmp_path / "a", curves, seeds=[0, 1, 2])
    result = rlcli.plot(run)
    assert result["curves"][0]["seeds"] == 1
    note = f"2 of 3 seeds of `{run}` left out: they have no `{result['y']}`"
    assert note in result["notes"]


def test_an_unknown_metric_is_one_error_with_the_nearest_and_all(tmp_path):
    run = write_run(tmp_path / "a")
    with pytest.raises(RlcliError, match="no run has the metric `avg_g`") as caught:
        rlcli.plot(run, y="avg_g")
    assert mentions(caught.value.hint, "did you mean", "`avg_G`", "`T`", "`avg_G`")
    assert "`evaluation.mean`" in caught.value.hint
    with pytest.raises(RlcliError, match="no run has the metric ``"):
        rlcli.plot(run, y="")


def test_runs_that_lack_the_metric_or_have_no_rows_are_noted(tmp_path):
    write(tmp_path / "a", {0: [(1, 1.0)]}, "loss")
    empty = write_run(tmp_path / "b", rows=[])
    result = rlcli.plot(tmp_path, y="loss")
    assert result["notes"] == [f"`{empty}` has no `loss` yet"]
    with pytest.raises(RlcliError, match="no metrics yet"):
        rlcli.plot(empty)
    (empty / "metrics.jsonl").unlink()
    with pytest.raises(RlcliError, match="no metrics yet"):
        rlcli.plot(empty)


@pytest.mark.parametrize("option", ["x", "center"])
def test_a_choice_that_does_not_exist_is_refused(tmp_path, option):
    with pytest.raises(RlcliError, match=f"`{option}` cannot be `stepz`"):
        rlcli.plot(tmp_path, **{option: "stepz"})


def test_a_threshold_that_is_not_finite_is_refused(tmp_path):
    with pytest.raises(RlcliError, match="`threshold` cannot be nan"):
        rlcli.plot(tmp_path, threshold=float("nan"))


@pytest.mark.parametrize(
    ("name", "start"),
    quick_first([("b.svg", b"<?xml"), ("a.png", b"\x89PNG"), ("c.PDF", b"%PDF")]),
)
def test_figures_are_written_with_equal_bytes_for_equal_curves(tmp_path, name, start):
    pytest.importorskip("matplotlib")
    points = {0: [(1, 1.0), (2, 2.0)], 1: [(1, 2.0), (2, 4.0)]}
    run = write(tmp_path / "run", points, recipe="a $cheap$ one")
    single = write(tmp_path / "single", {0: [(1, 1.0)]}, resolved=OTHER_RATE)
    rlcli.plot([run, single], output=tmp_path / name, threshold=1.5)
    first = (tmp_path / name).read_bytes()
    assert first.startswith(start)
    rlcli.plot([run, single], output=tmp_path / name, threshold=1.5)
    assert (tmp_path / name).read_bytes() == first


def draw_figure(result, width=8, height=5):
    """The canvas of a figure of this size in inches, after its layout."""
    style = pytest.importorskip("matplotlib.style")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style.context("default"):  # as in `make_bytes`: other tests leave their own
        canvas = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(canvas)
        panels = split_panels(result)
        figure._fill(canvas, result, panels, figure._describe_entries(panels), 3)
        figure.fit_layout(canvas)
        canvas.draw_without_rendering()
    return canvas


def test_a_figure_names_its_panels_and_axes_and_its_legend_covers_none(tmp_path):
    points = {0: [(1, 1.0), (900, 2.0)], 1: [(1, 2.0), (900, 2.0)]}
    for name in ("one", "another"):
        for environment in ("CartPole-v1", "Acrobot-v1", "Taxi-v3"):
            text = RESOLVED.replace("CartPole-v1", environment)
            run = tmp_path / f"{name}_{environment}"
            write(run, points, name=f"a long name of {name}", resolved=text)
    result = rlcli.plot(tmp_path, group="name")
    canvas = draw_figure({**result, "overall": None})
    panels = canvas.axes
    assert {each.get_title() for each in panels} == {
        *("CartPole-v1", "Acrobot-v1", "Taxi-v3")
    }
    for axes in panels:
        assert axes.get_ylabel() == "return, training"
        assert axes.get_xlim() == panels[0].get_xlim()
        assert axes.get_ylim() == panels[0].get_ylim()
        assert not any(line.get_clip_on() for line in axes.lines)
    (legend,) = canvas.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        *("a long name of another", "a long name of one")
    ]
    box = legend.get_window_extent()
    assert not any(box.overlaps(axes.get_tightbbox()) for axes in panels)
    for width in (8, 3.25):
        canvas = draw_figure({**result, "overall": None}, width)
        (legend,) = canvas.legends
        box = legend.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= canvas.bbox.width


def test_no_title_or_label_of_a_narrow_figure_reaches_into_another_panel():
    matplotlib = pytest.importorskip("matplotlib.figure")
    canvas = matplotlib.Figure(figsize=(3.25, 1.5), layout="constrained")
    every_axes = canvas.subplots(1, 2)
    for axes in every_axes:
        axes.set_title("MiniGrid-KeyCorridorS3R3-v0, 16 environments")
        axes.set_ylabel("normalized score, interquartile mean")
    figure.fit_layout(canvas)
    canvas.draw_without_rendering()
    left, right = (axes.title.get_window_extent() for axes in every_axes)
    assert left.x1 <= right.x0 and left.x0 >= 0 and right.x1 <= canvas.bbox.width
    for axes in every_axes:
        assert axes.yaxis.label.get_window_extent().height <= axes.bbox.height
        assert not axes.yaxis.label.get_window_extent().overlaps(left)


@pytest.mark.slow
def test_marks_of_many_groups_do_not_touch_and_dashes_tell_them_apart(tmp_path):
    names = [f"agent {index:02}" for index in range(11)] + ["a name of many words " * 8]
    for name, environment in itertools.product(names, ("CartPole-v1", "Acrobot-v1")):
        curves = {s: [(1, 0.0), (2, 10.0 * len(name) + s)] for s in range(2)}
        text = RESOLVED.replace("CartPole-v1", environment)
        write(tmp_path / name / environment, curves, name=name.strip(), resolved=text)
    result = rlcli.plot(tmp_path, group="name", reference=["0,400"])
    canvas = draw_figure(result, 3.25, 15)
    (legend,) = canvas.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= canvas.bbox.width
    by_title = {axes.get_title(): axes for axes in canvas.axes}
    for title in ("IQM", "optimality gap", "P(improvement)"):
        axes = by_title[title]
        rows = axes.get_ylim()[0] - axes.get_ylim()[1]
        distance = axes.bbox.height / rows * 72 / canvas.dpi
        sizes = [m.get_markersize() + m.get_markeredgewidth() for m in axes.lines]
        assert 0 < max(sizes) < distance
    styles = {
        (line.get_color(), line.get_linestyle())
        for line in by_title["performance profile"].lines
    }
    assert len(styles) == len(names)


@pytest.mark.parametrize("function", quick_first([rlcli.plot, rlcli.compare]))
def test_a_figure_for_a_paper_has_its_width_and_fonts(tmp_path, function):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    curves = {0: [(10, 1.0), (20, 3)], 1: [(10, 2.0), (20, 3)]}
    run = write(tmp_path / "a", curves, recipe="日本")  # which the font has not
    for width, inches in (("column", 3.25), ("page", 6.75)):
        function(run, output=tmp_path / "a.png", width=width)
        with image.open(tmp_path / "a.png") as drawn:
            assert drawn.width == int(300 * inches)
    function(run, output=tmp_path / "a.pdf", width="column", serif=True)
    content = (tmp_path / "a.pdf").read_bytes()
    assert b"STIXGeneral" in content and b"/FontFile2" in content  # embedded
    assert b"/Type3" not in content  # which conferences refuse
    function(run, output=tmp_path / "a.svg", serif=True)
    text = (tmp_path / "a.svg").read_text()
    assert "STIXGeneral" in text and "#0072b2" in text.lower()


def test_options_of_figures_for_papers_that_cannot_be_used_are_refused():
    with pytest.raises(RlcliError, match="`width` cannot be `colum`"):
        rlcli.plot("no run", width="colum")
    for function, output in ((rlcli.plot, None), (rlcli.compare, "table.md")):
        for name, value in (("width", "page"), ("serif", True)):
            with pytest.raises(RlcliError, match=f"`{name}` is for figures only"):
                function("no run", output=output, **{name: value})


@pytest.mark.slow
def test_several_environments_have_the_iqm_of_scores_over_steps(tmp_path):
    random = np.random.default_rng(0)
    returns = random.normal(100, 50, size=(2, 3, 4))  # [environments, seeds, points]
    for name, values in zip(("CartPole-v1", "Acrobot-v1"), returns, strict=True):
        curves = {
            seed: [(10 * i + 10, float(y)) for i, y in enumerate(each)]
            for seed, each in enumerate(values)
        }
        text = RESOLVED.replace("CartPole-v1", name)
        write(tmp_path / name, curves, name="ours", resolved=text)
    reference = ["CartPole-v1=0,200", "Acrobot-v1=50,150"]
    result = rlcli.plot(tmp_path, group="name", reference=reference)
    (curve,) = result["overall"]["curves"]
    scores = np.stack([returns[0] / 200, (returns[1] - 50) / 100])
    expected = iqm(scores.reshape(6, 4), axis=0)
    assert curve["x"] == [10, 20, 30, 40] and curve["seeds"] == 6
    np.testing.assert_allclose(curve["y"], expected, rtol=1e-5)
    samples = [
        iqm(np.concatenate([each[random.integers(3, size=3)] for each in scores]), 0)
        for _ in range(2000)
    ]
    ends = np.quantile(samples, [0.025, 0.975], axis=0)
    np.testing.assert_allclose([curve["low"], curve["high"]], ends, atol=0.06)
    titles = [each.get_title() for each in draw_figure(result).axes]
    assert {*titles[:3]} == {"CartPole-v1", "Acrobot-v1", "all environments"}
    assert titles[3:] == ["performance profile", "IQM", "optimality gap"]
    assert rlcli.plot(tmp_path / "CartPole-v1")["overall"] is None


def test_pairs_of_groups_have_a_panel_of_the_probability_of_improvement(tmp_path):
    finals = {"one": (100.0, 300.0), "two": (200.0, 200.0), "three": (5.0, 400.0)}
    for name, environment in itertools.product(finals, ("CartPole-v1", "Acrobot-v1")):
        curves = {s: [(1, 0.0), (2, end)] for s, end in enumerate(finals[name])}
        text = RESOLVED.replace("CartPole-v1", environment)
        write(tmp_path / f"{name}_{environment}", curves, name=name, resolved=text)
    result = rlcli.plot(tmp_path, group="name", reference=["0,400"])
    axes = draw_figure(result).axes[-1]
    assert axes.get_title() == "P(improvement)" and axes.get_xlim() == (0, 1)
    by_row = {}
    *lines, middle = axes.lines
    assert [*middle.get_xdata()] == [0.5, 0.5]
    for line in lines:
        by_row.setdefault(line.get_ydata()[0], []).append(line)
    colors = {label: f"C{index}" for index, label in enumerate(sorted(finals))}
    assert len(result["overall"]["improvement"]) == 3
    for row, pair in enumerate(result["overall"]["improvement"]):
        interval, point, left, right = by_row[row]
        assert [*interval.get_xdata()] == pair["ci95"]
        assert [*point.get_xdata()] == [pair["value"]]
        assert (left.get_color(), right.get_color()) == (
            colors[pair["first"]],
            colors[pair["second"]],
        )
        box = axes.get_window_extent()
        assert left.get_window_extent().x1 <= box.x0
        assert right.get_window_extent().x0 >= box.x1


def test_panels_of_other_units_keep_their_limits(tmp_path):
    other = RESOLVED.replace("CartPole-v1", "Acrobot-v1")
    write(tmp_path / "a", {0: [(1, 0.0), (100, 1.0)]})
    write(tmp_path / "b", {0: [(1, -500.0), (100, -80.0)]}, resolved=other)
    first, second = draw_figure(rlcli.plot(tmp_path)).axes
    assert first.get_xlim() == second.get_xlim()
    assert first.get_ylim()[0] > -1 and second.get_ylim()[1] < 0


def test_a_figure_that_cannot_be_written_is_refused_before_runs_are_read(
    tmp_path, monkeypatch
):
    with pytest.raises(RlcliError, match="not the name of a figure"):
        rlcli.plot("no run", output="a.gif")
    (tmp_path / "file").touch()
    with pytest.raises(RlcliError, match="cannot be written to: Not a directory"):
        rlcli.plot("no run", output=tmp_path / "file" / "a.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RlcliError, match="require matplotlib") as caught:
        rlcli.plot("no run", output="a.png")
    assert caught.value.hint.startswith(install_command("plot"))


def test_seeds_without_points_in_common_have_no_curve(tmp_path):
    write(tmp_path / "a", {0: [(1, 1.0), (2, 1.0)]})
    write(tmp_path / "b", {1: [(5, 1.0), (6, 1.0)]})
    with pytest.raises(RlcliError, match="no run has a curve of `avg_G`") as caught:
        rlcli.plot(tmp_path)
    assert mentions(caught.value.hint, "seeds", "not overlap")


def test_a_figure_is_the_same_whatever_matplotlibrc_the_current_folder_has(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    run = write(tmp_path / "a", {0: [(10, 1.0), (20, 3)]})
    rlcli.plot(run, output=tmp_path / "plain.png")
    with matplotlib.rc_context({"text.usetex": True, "lines.linewidth": 9}):
        rlcli.plot(run, output=tmp_path / "other.png")
    plain, other = (tmp_path / f"{name}.png" for name in ("plain", "other"))
    assert other.read_bytes() == plain.read_bytes()
