"""Results: the scores of a sweep of bsuite, as files and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlcli.errors import RlcliError
from rlcli.quoting import quote_markdown
from rlcli.results.comparison_tables import Table, markdown_lines
from rlcli.runs.files import replace_file, write_json
from rlcli.runs.formatting import format_number
from rlcli.sweeps.bsuite import radar
from rlcli.sweeps.bsuite.episode_points import read_results, write_csv
from rlcli.sweeps.bsuite.scores import score_experiments, score_tags
from rlcli.sweeps.bsuite.suite_files import RESULTS, RUNS, SuiteFolder, list_groups


def score_sweep(
    folder: SuiteFolder, info: Mapping[str, Any], failed: Sequence[str]
) -> dict[str, Any]:
    """Writes the results of the runs, and returns their scores."""
    found: dict[str, dict[int, list[dict[str, float]]]] = {}
    missing = []
    for group in list_groups(info):
        read = read_results(folder.run(group))
        for seed, index in enumerate(group.indices, info["seed"] + group.seed):
            id = f"{group.experiment}/{index}"
            if rows := read.get(seed):
                found.setdefault(group.experiment, {})[index] = rows
                write_csv(rows, folder.make(RESULTS), id)
            else:
                missing.append(id)
    try:
        scores = score_experiments(found)
    except KeyError as error:
        raise RlcliError(
            f"the runs in `{folder.find(RUNS)}` have no results `{error.args[0]}`",
            "restore their `metrics.jsonl`, or train them again",
        ) from error
    data = {
        "folder": str(folder.folder),
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
    write_json(folder.find("scores.json"), data)
    lines = [line for table in tables(data) for line in (*markdown_lines(table), "")]
    lines += [f"- {quote_markdown(note)}" for note in data["notes"]]
    replace_file(folder.find("scores.md"), ("\n".join(lines) + "\n").encode())
    radar.draw_radar(data["tags"], info["recipe"], folder.find("radar.png"))
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
