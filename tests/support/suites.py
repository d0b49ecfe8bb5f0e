"""Suites: the folder of a sweep of bsuite, written by hand."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcli.recipe import read_recipe
from rlcli.studies.study_grid import digest_of

RUN = "catch-0-1"
INFO = {
    **{"recipe": "mine", "set": [], "seed": 0, "mnist": None},
    **{"smoke": True, "chosen": ["catch/0", "catch/1"], "notes": []},
}


def write_suite(
    folder: Path, *, source: str = "dqn_catch", cell: str = RUN, **changes: Any
) -> Path:
    """The folder of a suite with a run that has not finished, and the recipe of one."""
    run = folder / "runs" / RUN
    run.mkdir(parents=True)
    info = INFO | changes
    fields = {"recipe": source, "digest": digest_of(read_recipe(source))}
    fields |= {"set": info["set"], "values": {"id": cell}, "tags": [], "smoke": True}
    write_record(folder, info, {f"runs/{cell}": fields})
    rows = [
        {"T": 90_000, "seed": seed, "ep": 10_000, "t": 9, "G": 1.0, "avg_G": 1.0}
        | {"total_return": 9_000.0, "total_regret": 4_000.0 * (1 + seed)}
        for seed in (0, 1)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (run / "metrics.jsonl").write_text(text)
    return folder


def write_record(
    folder: Path, info: Mapping[str, Any], cells: Mapping[str, Any] = {}
) -> None:
    """The record of a sweep, by default without cells."""
    record = {"format": 1, "bsuite": info, "cells": cells}
    (folder / "study.json").write_text(json.dumps(record))
