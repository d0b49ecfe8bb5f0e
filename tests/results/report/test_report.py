"""Report: the page as a file, what it refuses, and what a run cannot put into it."""

import base64
import hashlib
import itertools
import json
import math
import re

import numpy as np
import pytest
from folders import OTHER_RATE, RESOLVED, evaluation, imports_jax, write_run

import rlcli
from rlcli.errors import RlcliError
from rlcli.registry import libraries

pytest.importorskip("vl_convert")
from markup import Markup
from wording import mentions

from rlcli.results.groups import find_members, group_members
from rlcli.results.report import charts, learning, page
from rlcli.results.report.learning import Learning
from rlcli.runs.formatting import format_number
from rlcli.runs.metric_labels import describe_metric

ATTACK = "</script><img src=x onerror=alert(1)><script>alert(1)</script>"


class Page(Markup):
    """A page, and the document that it draws."""

    def __init__(self, text):
        super().__init__(text)
        self.document = json.loads(self.scripts[0])["page"]
        found = [*walk(self.document)]
        self.charts = [each for each in found if isinstance(each, dict)]
        self.text = " ".join(each for each in found if isinstance(each, str))


def walk(value):
    """The charts and the texts of a document, in order."""
    if isinstance(value, dict) and "blocks" in value:
        yield from walk([value["title"], value["note"], value["columns"]])
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from walk(each)
    elif isinstance(value, str):
        yield value


@pytest.fixture(autouse=True)
def small_library(monkeypatch):
    """Vega takes two seconds, and fast tests read only what is around it."""
    monkeypatch.setattr(page, "_library", lambda: "window.vegaEmbed = null;")


def rows(seeds=2, steps=6, **metrics):
    """Log points with a loss, and an evaluation at each."""
    found = []
    for step in range(1, steps + 1):
        for seed in range(seeds):
            start = {"T": 100 * step, "seed": seed}
            found.append(
                start
                | {"avg_G": step + seed, "loss": 1 / step, "policy.epsilon": 0.5}
                | {"dt": 1.0, "steps_per_second": 10.0}
                | metrics
            )
            found.append(start | {"evaluation": evaluation(10.0 * step + seed)})
    return found


def make(runs, tmp_path, **options):
    file = rlcli.report(
        runs, output=tmp_path / "page.html", **{"episodes": 0, **options}
    )
    return Page(file.read_text())


def learning_of(chart):
    return Learning("E", "avg_G", [], curves=[chart])


def test_results_and_curves_are_those_of_compare_and_plot(tmp_path):
    run = write_run(tmp_path / "a", rows=rows())
    found = make(run, tmp_path)
    (group,) = rlcli.compare(run)["environments"][0]["groups"]
    assert group["mean"]["value"] == 60.5
    assert "60.5 95 % interval 60 to 61" in found.text
    curve = rlcli.plot(run)["curves"][0]
    block = found.charts[0]["blocks"][0]
    assert block["x"] == curve["x"] and block["y"] == curve["y"]
    assert block["low"] == curve["low"] and block["high"] == curve["high"]


def test_several_environments_have_results_over_all_of_them(tmp_path):
    acrobot = RESOLVED.replace("CartPole-v1", "Acrobot-v1")
    for group, (name, text) in itertools.product(
        ("ours", "theirs"), (("a", RESOLVED), ("b", acrobot))
    ):
        write_run(tmp_path / group / name, rows=rows(), resolved=text, name=group)
    options = {"episodes": 0, "group": "name"}
    file = rlcli.report(tmp_path, output=tmp_path / "r.html", **options)
    *_, last = json.loads(Page(file.read_text()).scripts[0])["page"]["learning"]
    assert last["environment"] == "all environments"
    overall = rlcli.compare(tmp_path, group="name")["overall"]
    ours = overall["groups"][0]
    assert last["cards"][0]["value"] == format_number(ours["mean"]["value"])
    assert "normalized by" in last["tables"][0]["title"]
    means, profile, improvement = (each["blocks"] for each in last["results"])
    assert means[0]["x"][0] == ours["mean"]["value"]
    assert means[0]["points"][0] == pytest.approx(ours["results"], rel=1e-4)
    for column, name in (("x", "score"), ("y", "fraction"), ("low", "low")):
        assert profile[0][column] == pytest.approx(ours["profile"][name], rel=1e-4)
    (pair,) = overall["improvement"]
    assert improvement[0]["label"] == ["ours over theirs"]
    assert [improvement[0][n] for n in ("x", "low", "high")] == [
        [each] for each in (pair["value"], *pair["ci95"])
    ]


def test_every_metric_of_updates_and_every_schedule_has_a_chart(tmp_path):
    run = write_run(tmp_path / "a", rows=rows(gradient_norm=2.0))
    found = make(run, tmp_path)
    titles = [chart["spec"]["layer"][0]["encoding"]["x"] for chart in found.charts]
    assert len(titles) == 5
    for name in ("Loss", "Gradient norm", "policy.epsilon", "Return, training"):
        assert f"{name}" in found.text
    assert "steps_per_second" not in found.text


def test_a_chart_has_the_meaning_of_its_metric(tmp_path):
    found = make(write_run(tmp_path / "a", rows=rows()), tmp_path)
    meanings = {chart["title"]: chart["meaning"] for chart in found.charts}
    assert meanings["Return, evaluation"] == describe_metric("evaluation.mean")
    assert meanings["policy.epsilon"].startswith("value of this option")


def test_the_episodes_of_the_last_evaluation_are_shown_with_their_spread(tmp_path):
    result = {"std": 2.0, "min": 3.0, "max": 9.0, "length": 7.0, "episodes": 5}
    lines = [
        {"T": step, "seed": 0, "evaluation": {"mean": mean, **result}}
        for step, mean in ((1, 4.0), (2, 6.0))
    ]
    found = make(write_run(tmp_path / "a", rows=lines, means=[0]), tmp_path)
    (block,) = found.document["learning"][0]["spread"]["blocks"]
    assert (block["x"], block["low"], block["high"]) == ([6], [4], [8])
    assert block["points"] == [[3, 9]]


@pytest.mark.parametrize(("x", "end"), [("seconds", 0.6), ("updates", 1_800)])
def test_curves_are_drawn_by_another_x(tmp_path, x, end):
    lines = [row | {"updates": 3 * row["T"]} for row in rows() if "avg_G" in row]
    groups = group_members(find_members(write_run(tmp_path / "a", rows=lines), []))
    options = learning.MetricOptions("avg_G", "mean", None, x)
    (found,) = learning.describe_learning(groups, options, [])
    assert found.curves[0].blocks[0]["x"][-1] == pytest.approx(end)
    within = options._replace(range=(0.0, end / 2))
    (found,) = learning.describe_learning(groups, within, [])
    assert found.curves[0].blocks[0]["x"][-1] == pytest.approx(end / 2)


def test_a_page_loads_nothing_and_allows_only_its_own_scripts(tmp_path):
    found = make(write_run(tmp_path / "a", rows=rows()), tmp_path)
    for _, attributes in found.tags:
        for name in ("src", "href", "srcset", "action", "poster"):
            assert re.match("#|data:", attributes.get(name) or "#")
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search("@import|url\\(|https?:", "".join(found.styles))
    policy = found.all("meta")[1]["content"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for program in (*found.scripts[1:], *found.styles):
        digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_nothing_in_a_run_becomes_markup(tmp_path):
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    run = write_run(
        folder,
        rows=rows(**{ATTACK: 1.0, f"policy.{ATTACK}": 2.0}),
        resolved=RESOLVED.replace("q_learning", json.dumps(ATTACK)),
        recipe="<img src=x onerror=alert(1)>",  # with `/` it would be refused
        name=ATTACK,
        tags=[ATTACK],
        command=ATTACK,
        reason=ATTACK,
        git={"commit": ATTACK, "diff": ATTACK},
        versions={ATTACK: ATTACK},
        code={ATTACK: {"sha256": ATTACK, "source": "/secret/place.py"}},
        changes={f"train.{ATTACK}": [ATTACK, ATTACK]},
    )
    found = make(run, tmp_path)
    assert len(found.all("script")) == 3
    assert not found.all("img")
    assert not any("onerror" in attributes for _, attributes in found.tags)
    assert found.text.count(ATTACK) > 5
    assert any(ATTACK in json.dumps(chart) for chart in found.charts)
    assert "/secret" not in (tmp_path / "page.html").read_text()


def test_curves_of_long_runs_are_averaged_with_a_note(tmp_path):
    steps = 3_000
    values = np.random.default_rng(0).normal(size=steps)
    run = write_run(
        tmp_path / "a",
        means=[0],
        rows=[
            {"T": i + 1, "seed": 0, "avg_G": value, "loss": value, "q": value}
            for i, value in enumerate(values.tolist())
        ],
    )
    found = make(run, tmp_path)
    large, small, *_ = (chart["blocks"][0] for chart in found.charts)
    assert len(large["x"]) == 375 and len(small["x"]) == 150
    assert large["y"][0] == pytest.approx(values[:8].mean(), rel=1e-4)
    assert "Each point is the mean of 8 successive log points." in found.text
    assert (tmp_path / "page.html").stat().st_size < 120_000


def test_groups_have_intervals_differences_and_a_key(tmp_path):
    for name, resolved in (("a", RESOLVED), ("b", OTHER_RATE)):
        write_run(
            tmp_path / "runs" / name,
            rows=rows(),
            resolved=resolved,
            versions={"jax": name},
        )
    found = make(tmp_path / "runs", tmp_path)
    assert "optimizer.learning_rate 0.0005 0.01" in found.text
    assert "versions.jax a b" in found.text
    assert "probability of improvement: first over second" in found.text
    assert found.text.count("dqn_cartpole learning_rate=0.01") > 3
    (block,) = found.charts[0]["blocks"]
    assert [block[n] for n in ("x", "low", "high")] == [[60.5] * 2, [60] * 2, [61] * 2]


def test_each_environment_has_its_own_charts(tmp_path):
    other = RESOLVED.replace("CartPole-v1", "Acrobot-v1")
    write_run(tmp_path / "runs" / "a", rows=rows())
    write_run(tmp_path / "runs" / "b", rows=rows(), resolved=other, recipe="b")
    found = make(tmp_path / "runs", tmp_path)
    assert [len(chart["blocks"]) for chart in found.charts] == [1] * len(found.charts)


def test_runs_that_were_made_differently_have_a_note(tmp_path):
    short = OTHER_RATE.replace("50_000", "9_000")
    write_run(tmp_path / "runs" / "a", rows=rows())
    write_run(tmp_path / "runs" / "b", rows=rows(steps=3), resolved=short)
    found = make(tmp_path / "runs", tmp_path)
    assert "`train.steps` is 50_000 in" in found.text


def test_a_single_run_has_its_page_in_its_folder(folder):
    run = write_run(folder / "runs" / "a", rows=rows())
    assert rlcli.report(run, episodes=0) == run / "report.html"
    write_run(folder / "runs" / "b", rows=rows())
    page = rlcli.report("runs", episodes=0)
    assert page == folder / "report.html" and page.is_file()


def test_a_link_is_replaced_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "page.html").symlink_to(victim)
    make(write_run(tmp_path / "a", rows=rows()), tmp_path)
    assert victim.read_text() == "mine"
    assert not (tmp_path / "page.html").is_symlink()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "page.pdf"}, "`page.pdf` is not the name of a page"),
        ({"output": "a/run.json/page.html"}, "cannot be written to: Not a directory"),
        ({"center": "median"}, "`center` cannot be `median`"),
        ({"threshold": math.nan}, "`threshold` cannot be nan"),
        ({"threshold": -math.inf}, "`threshold` cannot be -inf"),
        ({"episodes": -1}, "`episodes` cannot be -1"),
        ({"y": "los"}, "no run has the metric `los`"),
        ({"group": "tag"}, "has no `tag`"),
    ],
)
def test_bad_options_are_refused(folder, options, message):
    run = write_run(folder / "a", rows=rows())
    with pytest.raises(RlcliError, match=message):
        rlcli.report(run, **{"episodes": 0, **options})
    assert not [*folder.rglob("*.html")]


def test_a_missing_extra_is_found_before_any_run_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(libraries, "missing_modules", lambda extra: ["vl_convert"])
    with pytest.raises(RlcliError) as error:
        rlcli.report(tmp_path / "missing")
    assert mentions(error.value.message, "`vl_convert`", "not installed")
    assert error.value.hint == libraries.install_command("report")


def test_imported_code_needs_trust_only_if_policies_are_loaded(tmp_path):
    run = write_run(tmp_path / "a", rows=rows(), imports=["mine:Env"])
    with pytest.raises(RlcliError, match="imports code: `mine:Env`") as error:
        make(run, tmp_path, episodes=3)
    assert "--trust" in error.value.hint
    make(run, tmp_path, episodes=0)


def test_a_page_without_episodes_needs_no_jax(tmp_path):
    run = write_run(tmp_path / "a", rows=rows())
    assert not imports_jax(
        "from rlcli.results.report import page; page._library = str; "
        f"rlcli.report({str(run)!r}, episodes=0)"
    )


def test_a_run_that_has_not_logged_is_an_error(tmp_path):
    with pytest.raises(RlcliError, match="no metrics yet"):
        make(write_run(tmp_path / "a", rows=[]), tmp_path)


def test_values_that_are_not_finite_are_left_out(tmp_path):
    found = make(
        write_run(
            tmp_path / "a",
            means=[0],
            rows=[
                {"T": step, "seed": 0, "avg_G": value, "loss": value}
                for step, value in ((1, 1.0), (2, None), (3, 2.0), (4, None))
            ],
        ),
        tmp_path,
    )
    assert found.charts[0]["blocks"][0]["x"] == [1, 3]


def test_numbers_that_are_not_finite_are_null_in_the_json_of_a_page():
    chart = charts.Chart("a", "b", {"height": math.nan}, [], {})
    content = {"learning": [learning_of(chart)]}
    (found,) = Page(page.render_page("t", {"page": content}).html).charts
    assert found["spec"] == {"height": None}


def test_the_interquartile_mean_is_that_of_compare(tmp_path):
    for name, resolved in (("a", RESOLVED), ("b", OTHER_RATE)):
        write_run(tmp_path / "runs" / name, rows=rows(seeds=5), resolved=resolved)
    found = make(tmp_path / "runs", tmp_path, center="iqm")
    groups = rlcli.compare(tmp_path / "runs")["environments"][0]["groups"]
    (block,) = found.charts[0]["blocks"]
    ends = zip(block["low"], block["high"], strict=True)
    assert [[*each] for each in ends] == [g["iqm"]["ci95"] for g in groups]
