"""Suites: the folder of a sweep of bsuite, written by hand."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RUN = "catch-0-1"
INFO = {
    **{"recipe": "mine", "source": "dqn_catch", "set": [], "seed": 0, "mnist": None},
    **{"smoke": True, "chosen": ["catch/0", "catch/1"], "notes": []},
}


def write_suite(folder: Path, **changes: Any) -> Path:
    """The folder of a suite with one run, which has not finished."""
    run = folder / "runs" / RUN
    run.mkdir(parents=True)
    write_record(folder, INFO | changes)
    rows = [
        {"T": 90_000, "seed": seed, "ep": 10_000, "t": 9, "G": 1.0, "avg_G": 1.0}
        | {"total_return": 9_000.0, "total_regret": 4_000.0 * (1 + seed)}
        for seed in (0, 1)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (run / "metrics.jsonl").write_text(text)
    return folder


def write_record(folder: Path, info: Mapping[str, Any]) -> None:
    """The record of a sweep without cells."""
    record = {"format": 1, "bsuite": info, "cells": {}}
    (folder / "study.json").write_text(json.dumps(record))
