"""Results: the scores of a sweep of bsuite, as files and tables."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.quoting import quote_markdown, quote_mathtext
from rlcli.results import figure
from rlcli.results.comparison_tables import markdown_lines
from rlcli.runs.files import replace_file, write_json, write_output
from rlcli.runs.formatting import format_number
from rlcli.runs.result import Table
from rlcli.studies.bsuite.episode_points import read_results, write_csv
from rlcli.studies.bsuite.scores import score_experiments, score_tags
from rlcli.studies.bsuite.suite_files import RESULTS, RUNS, Suite


def score_sweep(suite: Suite, failed: Sequence[str]) -> dict[str, Any]:
    """Writes the results of the runs, and returns their scores."""
    found: dict[str, dict[int, list[dict[str, float]]]] = {}
    missing = []
    info = suite.info
    for group in suite.groups:
        read = read_results(suite.run(group))
        for seed, index in enumerate(group.indices, info["seed"] + group.seed):
            id = f"{group.experiment}/{index}"
            if rows := read.get(seed):
                found.setdefault(group.experiment, {})[index] = rows
                write_csv(rows, suite.make(RESULTS), id)
            else:
                missing.append(id)
    try:
        scores = score_experiments(found)
    except KeyError as error:
        raise RlcliError(
            f"the runs in `{suite.find(RUNS)}` have no results `{error.args[0]}`",
            "restore their `metrics.jsonl`, or train them again",
        ) from error
    data = {
        "folder": str(suite.folder),
        "recipe": info["recipe"],
        "experiments": scores,
        "tags": score_tags(scores),
    }
    data["notes"] = [*info["notes"], *failed]
    if missing:
        data["notes"].append(f"no finished episode: {', '.join(missing)}")
    unfinished = [e["experiment"] for e in data["experiments"] if not e["finished"]]
    if unfinished:
        data["notes"].append(
            f"fewer episodes than bsuite has, in some runs of {', '.join(unfinished)}"
        )
    write_json(suite.find("scores.json"), data)
    lines = [line for table in tables(data) for line in (*markdown_lines(table), "")]
    lines += [f"- {quote_markdown(note)}" for note in data["notes"]]
    replace_file(suite.find("scores.md"), ("\n".join(lines) + "\n").encode())
    draw_radar(data["tags"], info["recipe"], suite.find("radar.png"))
    return data


def tables(data: Mapping[str, Any]) -> list[Table]:
    """The tables of `rlcli.bsuite`."""
    experiments = [
        [
            each["experiment"],
            format_number(each["score"]),
            f"{each['ids']} of {each['all_ids']}",
            "yes" if each["finished"] else "no",
            ", ".join(each["tags"]),
        ]
        for each in data["experiments"]
    ]
    tags = [
        [each["tag"], format_number(each["score"]), str(each["experiments"])]
        for each in data["tags"]
    ]
    columns = ["experiment", "score", "ids", "finished", "tags"]
    return [
        Table(f"{data['recipe']} on bsuite", columns, experiments),
        Table("mean by tag", ["tag", "score", "experiments"], tags),
    ]


_LEAST = 0.05  # the radius of a score of 0, as in bsuite: the shape does not collapse


def draw_radar(tags: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """Writes the radar plot of `score_tags`; tags without a score are at 0."""

    def fill(canvas: Any) -> None:
        _fill(canvas.add_subplot(projection="polar"), tags, title)

    write_output(path, figure.make_bytes(path.suffix, fill, size=(7, 7)))


def radii(tags: Sequence[Mapping[str, Any]]) -> list[float]:
    """The distances of the tags from the centre."""
    return [max(each["score"] or 0.0, _LEAST) for each in tags]


def _fill(axes: Any, tags: Sequence[Mapping[str, Any]], title: str) -> None:
    angles = [2 * math.pi * i / len(tags) for i in range(len(tags))]
    values = radii(tags)
    axes.plot([*angles, angles[0]], [*values, values[0]], linewidth=3)
    axes.fill(angles, values, alpha=0.2)
    axes.set_ylim(0, 1)
    axes.set_yticks([0.25, 0.5, 0.75, 1.0])
    labels = [quote_mathtext(each["tag"].replace("_", " ")) for each in tags]
    axes.set_thetagrids([math.degrees(angle) for angle in angles], labels)
    for label, angle in zip(axes.get_xticklabels(), angles, strict=True):
        is_left = math.pi / 2 < angle < 3 * math.pi / 2
        label.set_horizontalalignment("right" if is_left else "left")
    axes.set_title(quote_mathtext(title), pad=24)
