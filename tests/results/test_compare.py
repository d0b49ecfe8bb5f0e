"""Compare: results, protocols and tables of hand-made runs."""

import csv
import itertools
import json
import re

import numpy as np
import pytest
from folders import OTHER_RATE, RESOLVED, metric_rows, write_run

import rlcli
from rlcli import registry
from rlcli.errors import RlcliError
from rlcli.results import comparison_tables
from rlcli.results.aggregates import estimate, iqm
from rlcli.results.comparison_tables import name_groups, name_letters
from rlcli.results.references import (
    Reference,
    is_reference,
    parse_references,
    shipped_references,
)
from rlcli.runs.result import Table
from rlcli.runs.statistics import iqm as iqm_of_seeds


def shipped(name):
    found = shipped_references()[name]
    return Reference(found["low"], found["high"])


ACROBOT = RESOLVED.replace("CartPole-v1", "Acrobot-v1")


def write(folder, finals, *, steps=(10, 20), start=0.0, **info):
    """A run whose seeds end with the given evaluations."""
    curves = {
        seed: [(steps[0], start), (steps[1], final)]
        for seed, final in enumerate(finals)
    }
    rows = [
        {"T": step, "seed": seed, "avg_G": 0.0, "dt": 100.0}
        for seed in curves
        for step in steps
    ]
    rows += metric_rows(curves, "evaluation.mean")
    return write_run(folder, rows=rows, **info)


@pytest.fixture
def runs(tmp_path):
    """Two recipes in two environments."""
    write(tmp_path / "a", [400.0, 450, 500, 480], recipe="dqn", name="dqn")
    write(
        tmp_path / "b", [300.0, 475, 200], recipe="ppo", name="ppo", resolved=OTHER_RATE
    )
    dqn, ppo = ACROBOT, ACROBOT.replace("0.0005", "0.01")
    write(tmp_path / "c", [-90.0, -100], recipe="dqn_2", name="dqn", resolved=dqn)
    write(tmp_path / "d", [-120.0, -80], recipe="ppo_2", name="ppo", resolved=ppo)
    return tmp_path


def test_groups_have_the_statistics_of_their_seeds(runs):
    data = rlcli.compare([runs / "a", runs / "b"])
    (environment,) = data["environments"]
    assert environment["environment"] == "CartPole-v1"
    first, second = environment["groups"]
    assert (first["group"], first["results"]) == ("dqn", [400, 450, 500, 480])
    assert first["mean"]["value"] == 457.5 and first["median"]["value"] == 465
    assert first["iqm"]["value"] == pytest.approx(iqm_of_seeds([400, 450, 500, 480]))
    scores = [np.array([300.0, 475, 200])]
    assert tuple(second["iqm"]["ci95"]) == estimate(iqm, scores).ci95
    (pair,) = environment["improvement"]
    assert (pair["first"], pair["second"]) == ("dqn", "ppo")
    assert pair["value"] == pytest.approx((3 * 4 - 2) / 12)
    assert data["overall"] is None and data["notes"] == []
    assert rlcli.compare([runs / "a", runs / "b"]) == data


def test_one_seed_has_no_interval_and_says_so(tmp_path):
    write(tmp_path / "a", [400.0])
    data = rlcli.compare(tmp_path)
    assert data["environments"][0]["groups"][0]["mean"] == {"value": 400, "ci95": None}
    assert "400 [n/a: 1 seed]" in comparison_tables.as_markdown(data)


@pytest.mark.parametrize(
    ("result", "expected"),
    [("last", 30), ("best", 50), ("auc", (25 * 10 + 40 * 30) / 40)],
)
def test_the_result_of_a_seed_is_its_last_its_best_or_its_mean(
    tmp_path, result, expected
):
    points = {0: [(10, 0.0), (20, 50.0), (50, 30.0)]}
    write_run(tmp_path / "a", rows=metric_rows(points, "evaluation.mean"))
    data = rlcli.compare(tmp_path, result=result)
    assert data["environments"][0]["groups"][0]["results"] == [expected]


def test_a_threshold_has_the_median_of_steps_and_seconds(runs):
    groups = rlcli.compare([runs / "a", runs / "b"], threshold=475)
    first, second = groups["environments"][0]["groups"]
    assert first["steps_to_threshold"] == {"median": None, "reached": 2, "seeds": 4}
    assert second["steps_to_threshold"]["reached"] == 1
    groups = rlcli.compare(runs / "a", threshold=450)
    (row,) = groups["environments"][0]["groups"]
    assert row["steps_to_threshold"] == {"median": 20, "reached": 3, "seeds": 4}
    assert row["seconds_to_threshold"] == {"median": 2.0, "reached": 3, "seeds": 4}


def test_a_loss_reaches_a_threshold_from_above(tmp_path):
    losses = {0: [(10, 3.0), (20, 1.0)], 1: [(10, 1.5), (20, 0.5)], 2: [(10, 9.0)]}
    write_run(tmp_path / "a", rows=metric_rows(losses, "loss"))
    data = rlcli.compare(
        tmp_path / "a", y="loss", threshold=1.5, allow_differences=True
    )
    (row,) = data["environments"][0]["groups"]
    assert row["steps_to_threshold"] == {"median": 20, "reached": 2, "seeds": 3}


@pytest.mark.parametrize(
    ("metric", "worse", "better"), [("evaluation.mean", 0, 500), ("loss", 2, 0)]
)
def test_a_score_of_1_is_better_than_0(metric, worse, better, tmp_path):
    for name, end in (("a", better), ("b", worse)):
        curves = {seed: [(10, float(worse)), (20, float(end))] for seed in range(3)}
        write_run(tmp_path / name, name=name, rows=metric_rows(curves, metric))
    options = {"y": metric, "group": "name"}
    data = rlcli.compare(tmp_path, reference=[f"{worse},{better}"], **options)
    (pair,) = data["overall"]["improvement"]
    (own,) = data["environments"][0]["improvement"]
    assert pair["value"] == own["value"] == 1.0
    with pytest.raises(RlcliError, match="a score of 1 is better than 0") as caught:
        rlcli.compare(tmp_path, reference=[f"{better},{worse}"], **options)
    assert f"`{worse},{better}`" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (("50_000", "70_000"), "`train.steps` is 50_000 in"),
        (
            ("num_envs: 2", "num_envs: 2, length: 0.7"),
            "`environment.length` is null in",
        ),
        (("seeds: 2}", "seeds: 2, evaluate: {episodes: 9}}"), "`train.evaluate"),
    ],
)
def test_different_protocols_are_refused_and_named(runs, change, difference):
    other = write(runs / "e", [1.0, 2.0], resolved=RESOLVED.replace(*change))
    with pytest.raises(RlcliError, match="their settings differ") as caught:
        rlcli.compare([runs / "a", other])
    assert f"CartPole-v1: {difference}" in caught.value.message
    assert str(other) in caught.value.message
    assert "\n" not in caught.value.message
    assert "--allow-differences" in caught.value.hint
    data = rlcli.compare([runs / "a", other], allow_differences=True)
    assert difference in data["notes"][0]


def test_what_belongs_to_an_algorithm_may_differ(runs):
    text = RESOLVED.replace("num_envs: 2", "num_envs: 8").replace("mlp", "cnn")
    write(runs / "e", [1.0, 2.0], resolved=text.replace("seeds: 2", "seeds: 9"))
    assert rlcli.compare([runs / "a", runs / "e"])["notes"] == []


def test_evaluations_may_differ_where_results_do_not_depend_on_them(runs):
    text = RESOLVED.replace("seeds: 2}", "seeds: 2, evaluate: {episodes: 9, every: 5}}")
    write(runs / "e", [1.0, 2.0], resolved=text)
    other = text.replace("every: 5", "every: 6")
    write(runs / "f", [1.0, 2.0], recipe="other", resolved=other)
    assert rlcli.compare([runs / "a", runs / "e"], y="avg_G")["notes"] == []
    assert rlcli.compare([runs / "e", runs / "f"])["notes"] == []
    nearly = {"9_932": runs / "g", "10_000": runs / "h"}  # defaults of two unrolls
    for every, run in nearly.items():
        other = text.replace("every: 5", f"every: {every}")
        write(run, [1.0, 2.0], recipe=run.name, resolved=other)
    assert rlcli.compare([*nearly.values()], result="auc")["notes"] == []
    for option in ({"result": "best"}, {"result": "auc"}, {"threshold": 1}):
        with pytest.raises(RlcliError, match=r"`train\.evaluate\.every` is 5 in"):
            rlcli.compare([runs / "e", runs / "f"], **option)


def test_a_run_that_ends_early_is_refused(runs):
    write(runs / "e", [1.0, 2.0], steps=(5, 12), recipe="other")
    with pytest.raises(RlcliError, match="is at step 12, and that of"):
        rlcli.compare([runs / "a", runs / "e"])


def test_several_environments_have_normalized_scores(runs):
    data = rlcli.compare(runs, group="name")
    overall = data["overall"]
    first, second = overall["groups"]
    assert (first["group"], first["seeds"]) == ("dqn", [4, 2])
    cartpole, acrobot = shipped("CartPole-v1"), shipped("Acrobot-v1")
    scores = [
        (np.array([400, 450, 500, 480]) - cartpole.low) / (475 - cartpole.low),
        (np.array([-90, -100]) - acrobot.low) / (-100 - acrobot.low),
    ]
    expected = np.mean([each.mean() for each in scores])
    assert first["mean"]["value"] == pytest.approx(expected)
    gap = np.mean([np.maximum(1 - each, 0).mean() for each in scores])
    assert first["optimality_gap"]["value"] == pytest.approx(gap)
    profile = first["profile"]
    assert profile["fraction"][0] == 1 and profile["fraction"][-1] == 0
    assert (np.diff(profile["fraction"]) <= 0).all()
    assert len(profile["low"]) == len(profile["score"])
    assert overall["improvement"][0]["second"] == second["group"] == "ppo"


def test_a_normalization_of_ones_own_goes_before_the_built_in_one(runs):
    data = rlcli.compare(runs, group="name", reference=["0,500", "Acrobot-v1=-500,-50"])
    scales = data["overall"]["normalization"]
    assert scales == {"CartPole-v1": [0, 500], "Acrobot-v1": [-500, -50]}
    single = rlcli.compare(runs / "a", reference="0,500")
    for function in (rlcli.compare, rlcli.plot):
        notes = function(runs, group="name", reference=["Acrobt-v1=-500,-50"])["notes"]
        assert "no run is of environment `Acrobt-v1`" in notes[0]
    assert single["overall"]["groups"][0]["mean"]["value"] == pytest.approx(0.915)


@pytest.mark.parametrize(
    "text", ["", "1", "1,1", "a,b", "CartPole-v1=1", "1,2,3", "0,inf"]
)
def test_a_normalization_that_is_none_is_refused(text):
    with pytest.raises(RlcliError, match="`--reference` cannot be"):
        parse_references([text])


def test_environments_without_references_and_groups_with_gaps_are_noted(runs):
    notes = rlcli.compare([runs / "a", runs / "d"], group="name")["notes"]
    assert any("no group has runs in all environments" in note for note in notes)
    own = RESOLVED.replace("CartPole-v1", "Own-v0")
    write(runs / "e", [1.0], name="dqn", resolved=own)
    data = rlcli.compare([runs / "a", runs / "e"], group="name")
    assert data["overall"] is None
    assert "`Own-v0` has no reference scores" in data["notes"][0]


def test_groups_with_gaps_are_noted_in_their_order(runs):
    notes = rlcli.compare(runs)["notes"]
    lacking = [note.split("`")[1] for note in notes if "lacks runs" in note]
    assert lacking == ["dqn", "ppo", "dqn_2", "ppo_2"]


def test_other_options_of_an_environment_have_no_shipped_reference(runs):
    for change in ("gravity: 3", "wrappers: [{name: scale_reward, factor: 2}]"):
        text = RESOLVED.replace("num_envs: 2", f"num_envs: 2, {change}")
        run = write(runs / change[:4], [1.0, 2.0], name="dqn", resolved=text)
        data = rlcli.compare([run, runs / "c"], group="name")
        assert data["overall"] is None
        assert "`CartPole-v1` has no reference scores for these" in data["notes"][0]
    text = RESOLVED.replace("num_envs: 2", "num_envs: 9, gravity: 9.8")
    run = write(runs / "e", [1.0, 2.0], name="dqn", resolved=text)
    assert rlcli.compare([run, runs / "c"], group="name")["overall"] is not None


def write_study(folder, reference):
    """Cells of one recipe in two variants of an environment."""
    cells = {}
    for length in (0.5, 2):
        label = f"CartPole-v1,length={length}"
        text = RESOLVED.replace("num_envs: 2", f"num_envs: 2, length: {length}")
        cell = {"label": f"l{length}", "values": {"environment": label}}
        write(folder / f"l{length}", [100 * length, 200.0], cell=cell, resolved=text)
        cells[cell["label"]] = {
            **{"recipe": "dqn_cartpole", "digest": "", "set": [], "tags": []},
            **{"values": cell["values"], "name": None, "smoke": False},
        }
    record = {"format": 1, "reference": reference, "cells": cells}
    (folder / "study.json").write_text(json.dumps(record))
    return folder


def test_variants_of_an_environment_are_environments_of_a_study(tmp_path):
    names = [f"CartPole-v1,length={length}" for length in (0.5, 2)]
    study = write_study(tmp_path / "a", {names[0]: [0, 100], names[1]: [100, 300]})
    data = rlcli.compare(study)
    assert [each["environment"] for each in data["environments"]] == names
    assert data["overall"]["normalization"] == {
        names[0]: [0, 100],
        names[1]: [100, 300],
    }
    (group,) = data["overall"]["groups"]
    assert group["mean"]["value"] == pytest.approx(np.mean([0.5, 2, 0.5, 0.5]))
    given = rlcli.compare(study, reference=[f"{names[0]}=0,50"])["overall"]
    assert given["normalization"][names[0]] == [0, 50]
    broken = write_study(tmp_path / "b", {names[0]: ["x"], names[1]: [1, 1]})
    assert rlcli.compare(broken)["overall"] is None


def test_runs_without_a_recipe_are_left_out(runs):
    (runs / "b" / "resolved.yaml").unlink()
    data = rlcli.compare([runs / "a", runs / "b"])
    assert len(data["environments"][0]["groups"]) == 1
    assert "recipe cannot be read" in data["notes"][0]


def test_without_evaluations_training_is_compared_with_a_note(runs):
    write_run(runs / "e", is_evaluated=False, step=20)
    data = rlcli.compare([runs / "a", runs / "e"])
    assert data["y"] == "avg_G"
    assert "too few evaluations" in data["notes"][0]


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("a.md", "| dqn | 4 | **458 ["),
        ("b.html", "<td>dqn</td><td>4</td><td><b>458 ["),
        ("c.json", '"environment": "Acrobot-v1"'),
    ],
)
def test_reports_are_written(runs, name, fragment):
    data = rlcli.compare(runs, group="name", threshold=475, output=runs / name)
    text = (runs / name).read_text(encoding="utf-8")
    assert fragment in text
    if name.endswith(".json"):
        assert json.loads(text) == data
    else:
        for word in ("optimality gap", "performance profile", "until 475 is reached"):
            assert word in text


@pytest.mark.parametrize(
    ("name", "start"), [("a.pdf", b"%PDF"), ("b.SVG", b"<?xml"), ("c.png", b"\x89PNG")]
)
@pytest.mark.slow
def test_figures_are_written_with_equal_bytes_for_equal_results(runs, name, start):
    files = [runs / f"1_{name}", runs / f"2_{name}"]
    for file in files:
        rlcli.compare(runs, group="name", output=file)
    assert files[0].read_bytes().startswith(start)
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.slow
def test_a_figure_has_the_statistics_of_all_environments_and_groups(runs):
    rlcli.compare(runs, group="name", output=runs / "a.svg")
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", (runs / "a.svg").read_text())
    for word in ("performance profile", "CartPole-v1: return, evaluation"):
        assert texts.count(word) == 1
    for word in ("dqn", "ppo"):  # on the rows of three panels, and of the profile
        assert texts.count(word) == 4
    assert texts.count("IQM") == 3  # two environments, and all of them
    rlcli.compare([runs / "a", runs / "b"], output=runs / "b.svg")
    text = (runs / "b.svg").read_text()
    assert "performance profile" not in text and "gap" not in text


def test_panels_of_one_environment_have_equal_axes_and_their_rows_names(runs):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    from rlcli.results import comparison_figure

    data = rlcli.compare([runs / "a", runs / "b"])
    canvas = Figure(figsize=(8, 3), layout="constrained")
    rows = [*comparison_figure._rows(data)]
    styles = {"dqn": {"color": "C0"}, "ppo": {"color": "C1"}}
    comparison_figure._fill(canvas, data, rows, [3], styles)
    mean, median, iqm = canvas.axes
    assert mean.get_xlim() == median.get_xlim() == iqm.get_xlim()
    assert [each.get_xlabel() for each in canvas.axes] == ["mean", "median", "IQM"]
    assert [text.get_text() for text in mean.get_yticklabels()] == ["dqn", "ppo"]


def test_of_a_loss_the_lowest_is_the_best_and_of_entropy_none_is(tmp_path):
    for name, losses in (("a", [3.0, 1.0, 2.0]), ("b", [6.0, 4.0, 5.0])):
        points = {seed: [(1, loss), (2, loss + 1)] for seed, loss in enumerate(losses)}
        rows = metric_rows(points, "loss") + metric_rows(points, "entropy")
        write_run(tmp_path / name, rows=rows, recipe=name)
    data = rlcli.compare(tmp_path, y="loss", result="best")
    (environment,) = data["environments"]
    assert [each["results"] for each in environment["groups"]] == [[3, 1, 2], [6, 4, 5]]
    assert environment["improvement"][0]["value"] == 1
    table = next(comparison_tables.tables(data))
    assert table.title == "CartPole-v1: loss"
    assert table.best == [(0, 2), (0, 3), (0, 4)]
    table, pairs = comparison_tables.tables(rlcli.compare(tmp_path, y="entropy"))
    assert table.best == []
    assert "probability of a higher value" in pairs.title


def test_numbers_that_look_equal_are_equally_good(tmp_path):
    write(tmp_path / "a", [500.0, 500.0], recipe="a")
    write(tmp_path / "b", [500.0, 499.99], recipe="b")
    write(tmp_path / "c", [400.0, 400.0], recipe="c")
    table = next(comparison_tables.tables(rlcli.compare(tmp_path)))
    assert {row for row, _ in table.best} == {0, 1}


def test_reference_scores_are_those_of_returns_only(runs):
    data = rlcli.compare(runs, group="name", y="dt", allow_differences=True)
    assert data["overall"] is None
    assert "no reference scores" in "".join(data["notes"])


def test_a_page_says_what_is_compared(runs):
    text = comparison_tables.as_html(rlcli.compare([runs / "a", runs / "b"]))
    title = "dqn and ppo in CartPole-v1: return, evaluation"
    assert f"<title>{title}</title>" in text and f"<h1>{title}</h1>" in text
    assert "<b>458 [" in text  # the best is bold
    many = [f"a_long_name_of_recipe_{index}" for index in range(5)]
    assert name_groups(many, ["A", "B"]) == "5 groups in A and B"


def test_a_figure_without_matplotlib_is_refused_before_runs_are_read(monkeypatch):
    monkeypatch.setattr("rlcli.results.figure.missing_modules", lambda extra: ["x"])
    with pytest.raises(RlcliError, match="figures require matplotlib"):
        rlcli.compare("no run", output="a.pdf")


def test_html_and_markdown_escape_names(tmp_path):
    write(tmp_path / "a", [1.0, 2.0], name="x", recipe="<b>|<i>")
    data = rlcli.compare(tmp_path)
    assert "&lt;b&gt;|&lt;i&gt;" in comparison_tables.as_html(data)
    assert r"\<b>\|\<i>" in comparison_tables.as_markdown(data)


def test_several_environments_are_the_rows_of_a_table_of_groups(runs):
    data = rlcli.compare(runs, group="name")
    (table,) = (
        t
        for t in comparison_tables.tables(data)
        if t.title == "all environments: return, evaluation, IQM"
    )
    assert table.header == ["environment", "dqn", "ppo"]
    assert [row[0] for row in table.rows] == ["CartPole-v1", "Acrobot-v1"]
    values = [[float(cell.split(" ")[0]) for cell in row[1:]] for row in table.rows]
    assert values == [[465, 312], [-95, -100]]  # 312.5, by hand
    assert table.best == [(0, 1), (1, 1)]
    letters, fitted = comparison_tables.fit([table], 30)
    assert letters == {} and fitted[0].rows[1][1] == "-95\n[-100, -90]"
    letters, fitted = comparison_tables.fit([*comparison_tables.tables(data)], 30)
    assert [*letters] == ["dqn", "ppo"]
    assert ["environment", "A", "B"] in [each.header for each in fitted]
    latex = comparison_tables.as_latex(data)
    assert r"Acrobot-v1 & \textbf{$-$95 [$-$100, $-$90]} & $-$100 [" in latex


def test_latex_has_rules_escapes_names_and_sets_the_best_in_bold(tmp_path):
    write(tmp_path / "a", [1.0, 3.0], name="x", recipe="my_dqn&50%")
    write(tmp_path / "b", [5.0, 9.0], name="y", recipe="ppo")
    file = tmp_path / "table.tex"
    rlcli.compare([tmp_path / "a", tmp_path / "b"], output=file)
    text = file.read_text()
    table = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") >= 1
    first, second = table.partition("\\midrule\n")[2].strip().splitlines()
    assert first.startswith(r"my\_dqn\&50\% & 2 & 2 [")
    assert first.count(r"\textbf") == 0
    assert second.startswith(r"ppo & 2 & \textbf{7 [")
    assert second.count(r"\textbf") == 3
    assert all(line.endswith(r" \\") for line in (first, second))


def read_csv(data):
    """The numbers by environment, group, statistic, second group and score."""
    rows = csv.DictReader(comparison_tables.as_csv(data).splitlines())
    names = ("environment", "group", "statistic", "second", "score")
    numbers = ("value", "low", "high")
    return {
        tuple(row[name] for name in names): [float(row[n] or "nan") for n in numbers]
        for row in rows
    }


def test_csv_has_a_line_for_each_estimate_with_the_limits_of_its_interval(tmp_path):
    write(tmp_path / "a", [1.0, 3.0], name="x", recipe='one, "two"')
    write(tmp_path / "b", [5.0], name="y", recipe="ppo")
    file = tmp_path / "table.csv"
    data = rlcli.compare([tmp_path / "a", tmp_path / "b"], output=file)
    with file.open(newline="") as lines:
        rows = [*csv.DictReader(lines)]
    assert {(row["metric"], row["result"]) for row in rows} == {
        ("return, evaluation", "last")
    }
    assert [(row["group"], row["seeds"], row["statistic"]) for row in rows] == [
        *[('one, "two"', "2", name) for name in ("mean", "median", "iqm")],
        *[("ppo", "1", name) for name in ("mean", "median", "iqm")],
        ('one, "two"', "2", "improvement"),
    ]
    found = read_csv(data)
    limits = data["environments"][0]["groups"][0]["mean"]["ci95"]
    assert found["CartPole-v1", 'one, "two"', "mean", "", ""] == [2, *limits]
    np.testing.assert_equal(
        found["CartPole-v1", "ppo", "mean", "", ""], [5, np.nan, np.nan]
    )


def test_improvement_and_profile_over_environments_are_those_of_brute_force(tmp_path):
    """Resampled within each environment, in a loop."""
    random = np.random.default_rng(0)
    finals = {
        "CartPole-v1": {
            "dqn": random.uniform(200, 500, 10),
            "ppo": random.uniform(100, 450, 12),
        },
        "Acrobot-v1": {
            "dqn": random.uniform(-400, -80, 11),
            "ppo": random.uniform(-300, -80, 10),
        },
    }
    for environment, label in itertools.product(finals, ("dqn", "ppo")):
        text = RESOLVED.replace("CartPole-v1", environment)
        returns = finals[environment][label].tolist()
        write(tmp_path / environment / label, returns, name=label, resolved=text)
    found = read_csv(rlcli.compare(tmp_path, group="name"))
    scores = {
        label: [shipped(name).normalize(each[label]) for name, each in finals.items()]
        for label in ("dqn", "ppo")
    }
    drawn = [
        {
            label: [random.choice(each, len(each)) for each in by_environment]
            for label, by_environment in scores.items()
        }
        for _ in range(2000)
    ]

    def improve(sample):
        """The mean over environments of the fraction of pairs that dqn wins."""
        wins = [
            np.mean([(x > y) + 0.5 * (x == y) for x, y in itertools.product(*each)])
            for each in zip(sample["dqn"], sample["ppo"], strict=True)
        ]
        return np.mean(wins)

    def check(row, function):
        value, *interval = found["all environments", *row]
        assert value == pytest.approx(function(scores))
        ends = np.quantile([function(each) for each in drawn], [0.025, 0.975])
        np.testing.assert_allclose(interval, ends, atol=0.5 / 10 + 1e-6)  # a seed

    check(("dqn", "improvement", "ppo", ""), improve)
    profiles = [row for row in found if row[2] == "profile"]
    assert len(profiles) == 2 * 61 and {row[0] for row in profiles} == {
        "all environments"
    }
    for label, score in itertools.product(scores, ("0", "0.5", "0.95", "1")):
        check(
            (label, "profile", "", score),
            lambda sample, label=label, score=float(score): np.mean(
                [np.mean(each > score) for each in sample[label]]
            ),
        )


def test_only_runs_that_match_are_compared(tmp_path):
    write(tmp_path / "a", [1.0], name="x", recipe="dqn")
    write(tmp_path / "b", [5.0], name="y", recipe="ppo")

    def groups(**options):
        data = rlcli.compare(tmp_path, **options)
        return [group["group"] for group in data["environments"][0]["groups"]]

    assert len(groups()) == 2
    assert groups(filter=["recipe=dqn"]) == ["dqn"]
    assert groups(filter=["name!=x"]) == ["ppo"]
    with pytest.raises(RlcliError, match="no run matches"):
        groups(tag=["paper"])


@pytest.mark.parametrize(
    "options",
    [
        {"output": "a.txt"},
        {"output": "pyproject.toml/a.md"},
        {"result": "first"},
        {"threshold": float("inf")},
    ],
)
def test_wrong_options_are_refused_before_runs_are_read(options):
    with pytest.raises(RlcliError, match=r"is not the name|cannot be"):
        rlcli.compare("no run", **options)


def test_every_native_environment_ships_a_reference_with_its_present_options():
    for name in registry.names("environment"):
        if name[-1] == "/" or name.startswith("probe-"):
            continue
        found = shipped_references()[name]
        assert found["low"] < found["high"] and found["source"]
        part = registry.find("environment", name)
        defaults = {
            key: each.default for key, each in registry.options(part.factory).items()
        }
        same = {key: found["options"].get(key) for key in defaults}
        assert json.loads(json.dumps(defaults)) == same


def test_letters_stand_for_groups_where_a_table_is_too_wide():
    table = Table("t", ["first", "second", "p"], [["long " * 9, "other", "0.5"]])
    assert comparison_tables.fit([table], 80) == ({}, [table])
    other = Table("t", ["group", "p"], [["other", "1"]])
    letters, tables = comparison_tables.fit([table, other], 40)
    assert letters == {"long " * 9: "A", "other": "B"}
    assert [each.rows for each in tables] == [[["A", "B", "0.5"]], [["B", "1"]]]


def test_letters_do_not_replace_numbers_that_equal_a_group():
    table = Table("t", ["group", "seeds"], [["3", "3"], ["long " * 9, "3"]])
    _, (lettered,) = comparison_tables.fit([table], 40)
    assert lettered.rows == [["A", "3"], ["B", "3"]]


def test_letters_go_on_after_z():
    letters = [*itertools.islice(name_letters(), 30)]
    assert (letters[0], letters[25:28]) == ("A", ["Z", "AA", "AB"])


@pytest.mark.parametrize("value", [[0, 10**400], [0, float("nan")], [True, 2], [1, 1]])
def test_a_reference_is_two_different_numbers(value):
    assert not is_reference(value)
    assert is_reference([0, 10**300])
