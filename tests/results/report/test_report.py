"""Report: the page as a file, what it refuses, and what a run cannot put into it."""

import base64
import hashlib
import itertools
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from folders import OTHER_RATE, RESOLVED, evaluation, imports_jax, write_run

import rlcli
from rlcli.errors import RlcliError
from rlcli.registry import libraries

pytest.importorskip("jinja2")
pytest.importorskip("vl_convert")
from wording import mentions

from rlcli.results.report import charts, page
from rlcli.results.report.learning import Learning

ATTACK = "</script><img src=x onerror=alert(1)><script>alert(1)</script>"


class Page(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.styles, self.shown = [], [], [], []
        self._open = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data):
        last = self._open[-1] if self._open else ""
        if last == "script":
            self.scripts[-1] += data
        elif last == "style":
            self.styles.append(data)
        else:
            self.shown.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(self.shown).split())

    @property
    def charts(self):
        return json.loads(self.scripts[0])


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
    return Learning("E", "avg_G", [], None, [], [chart], [], [])


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


def test_every_metric_of_updates_and_every_schedule_has_a_chart(tmp_path):
    run = write_run(tmp_path / "a", rows=rows(gradient_norm=2.0))
    found = make(run, tmp_path)
    titles = [chart["spec"]["layer"][0]["encoding"]["x"] for chart in found.charts]
    assert len(titles) == 5
    for name in ("Loss", "Gradient norm", "policy.epsilon", "Return, training"):
        assert f"{name}" in found.text
    assert "steps_per_second" not in found.text


def test_a_page_loads_nothing_and_allows_only_its_own_scripts(tmp_path):
    found = make(write_run(tmp_path / "a", rows=rows()), tmp_path)
    for _, attributes in found.tags:
        for name in ("src", "href", "srcset", "action", "poster"):
            assert re.match("#|data:", attributes.get(name) or "#")
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search("@import|url\\(|https?:", "".join(found.styles))
    policy = found.all("meta")[1]["content"]
    assert policy.startswith("default-src 'none'; ")
    data, *programs = found.scripts
    assert json.loads(data)
    for program in programs:
        digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_nothing_in_a_run_becomes_markup(tmp_path):
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    run = write_run(
        folder,
        rows=rows(**{ATTACK: 1.0, f"policy.{ATTACK}": 2.0}),
        resolved=RESOLVED.replace("q_learning", json.dumps(ATTACK)),
        recipe=ATTACK,
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
    means = [b for b in found.charts[0]["blocks"] if b["kind"] == "mean"]
    assert [(b["x"], b["low"], b["high"]) for b in means] == [([60.5], 60, 61)] * 2


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
    assert "train.steps is 50_000 in" in found.text.replace("  ", " ")


def test_screen_readers_can_read_a_page(tmp_path):
    for name, resolved in (("a", RESOLVED), ("b", OTHER_RATE)):
        write_run(tmp_path / "runs" / name, rows=rows(), resolved=resolved)
    found = make(tmp_path / "runs", tmp_path)
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len({*ids})
    anchors = {a["href"][1:] for a in found.all("a")}
    assert anchors <= {*ids}
    assert found.all("html")[0]["lang"] == "en"
    assert len(found.all("h1")) == len(found.all("main")) == 1
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    plots = [d for d in found.all("div") if d.get("class") == "plot"]
    assert len(plots) == len(found.charts)
    for plot in plots:
        assert plot["role"] == "img" and plot["tabindex"] == "0"
        assert plot["aria-label"].strip()
    tables = [d for d in found.all("details") if d.get("class") == "data"]
    assert len(tables) == len(plots)
    assert all(header["scope"] in ("row", "col") for header in found.all("th"))
    regions = [d for d in found.all("div") if d.get("class") == "scroll"]
    assert all(d["tabindex"] == "0" and d["aria-label"] for d in regions)


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
    chart = charts.Chart("a", "b", {"height": math.nan}, [], charts.ChartTable([], []))
    content = page.Content(
        "t", ["a"], "mean", [], [learning_of(chart)], [], [], [], [], []
    )
    (found,) = Page(page.render_page(content)).charts
    assert found["spec"] == {"height": None}


def test_the_interquartile_mean_is_that_of_compare(tmp_path):
    for name, resolved in (("a", RESOLVED), ("b", OTHER_RATE)):
        write_run(tmp_path / "runs" / name, rows=rows(seeds=5), resolved=resolved)
    found = make(tmp_path / "runs", tmp_path, center="iqm")
    groups = rlcli.compare(tmp_path / "runs")["environments"][0]["groups"]
    means = [b for b in found.charts[0]["blocks"] if b["kind"] == "mean"]
    assert [[b["low"], b["high"]] for b in means] == [g["iqm"]["ci95"] for g in groups]
