"""Folders: runs written by hand, and what tests compare of a run."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcli.runs import checkpoint, metrics
from rlcli.runs.run_folder import Run


def snapshot(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """The time of the last change of every file and folder, and the bytes of files."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in (folder, *folder.rglob("*"))
    }


def checkpoint_bytes(data: Any) -> bytes:
    """The bytes of a checkpoint file with plain data."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.pkl.lz4")
        checkpoint.write(path, data)
        return path.read_bytes()


def read_rows(run: str | Path) -> list[dict[str, Any]]:
    """The rows of a run without the fields of clocks, which differ in equal runs."""
    return [metrics.drop_clock_fields(row) for row in metrics.read_metrics(run)]


RESOLVED = """\
environment: {name: CartPole-v1, num_envs: 2}
network:
  name: mlp
  layers: [64, 64]
policy:
  name: epsilon_greedy
  epsilon: {name: linear, from: 1.0, to: 0.1}
updater: {name: q_learning}
optimizer:
  name: adam
  learning_rate: 0.0005
train: {steps: 50_000, seed: 0, seeds: 2}
"""
OTHER_RATE = RESOLVED.replace("0.0005", "0.01")


def metric_rows(
    curves: Mapping[int, Sequence[tuple[int, float | None]]], metric: str = "avg_G"
) -> list[dict[str, Any]]:
    """Rows of metrics of (step, value) by seed; `evaluation.…` is of evaluations."""
    head, _, tail = metric.partition(".")
    return [
        {"T": step, "seed": seed, head: {tail: value} if tail else value}
        for seed, points in curves.items()
        for step, value in points
    ]


def evaluation(mean: float | None) -> dict[str, Any]:
    """The result of five equal episodes."""
    same = dict.fromkeys(("mean", "min", "max", "length"), mean)
    return {**same, "std": mean and 0.0, "episodes": 5}


def write_run(
    folder: Path,
    *,
    means: Sequence[float] = (10.0, 14.0),
    step: int = 50_000,
    is_evaluated: bool = True,
    rows: Sequence[Mapping[str, Any]] | None = None,
    resolved: str = RESOLVED,
    **info: Any,
) -> Path:
    """A run folder without checkpoints, as training leaves it.

    `rows` are the lines of `metrics.jsonl`; by default one log point, and an evaluation
    if `is_evaluated`.
    """
    folder.mkdir(parents=True)
    found = sorted({row["seed"] for row in rows or () if "seed" in row})
    fields = {
        "recipe": "dqn_cartpole",
        "status": "finished",
        "created": "2026-11-20T10:00:00Z",
        "name": None,
        "changes": {"optimizer.learning_rate": [0.001, 0.0005]},
        "tags": [],
        "seeds": found or [*range(len(means))],
        "smoke": False,
        "reason": "",
        "frozen": {},
        "total_steps": 50_000,
        "ended": "2026-11-20T10:05:00Z",
        "command": "rlcli train dqn_cartpole",
    }
    (folder / "run.json").write_text(json.dumps(fields | info))
    (folder / "resolved.yaml").write_text(resolved)
    seeds = [{"T": step, "seed": seed} for seed in range(len(means))]
    metrics = [
        row | {"ep": 3, "avg_G": mean + 1, "steps_per_second": 1_000.0}
        for row, mean in zip(seeds, means, strict=True)
    ]
    if is_evaluated:
        metrics += [
            row | {"evaluation": evaluation(mean)}
            for row, mean in zip(seeds, means, strict=True)
        ]
        index = {"latest": f"{step:09d}.pkl.lz4", "best": {}}
        (folder / "checkpoints.json").write_text(json.dumps(index))
    rows = metrics if rows is None else rows
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text)
    return folder


def finish_run(run: Run, *steps: int) -> Run:
    """The run as if it had been trained: checkpoints, index and policy."""
    run.checkpoints.mkdir()
    for step in steps:
        run.checkpoint(step).write_bytes(b"")
        run.write_index(latest=run.checkpoint(step).name)
    run.policy.write_bytes(b"")
    return run


def imports_jax(call: str) -> bool:
    """Whether a call of a function of rlcli, in a new process, imports JAX."""
    program = f"import sys, rlcli; {call}; sys.exit('jax' in sys.modules)"
    command = [sys.executable, "-W", "error", "-c", program]
    code = subprocess.run(command, capture_output=True, check=False).returncode
    assert code in (0, 1)
    return code == 1
