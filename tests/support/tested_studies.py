"""Studies with a test: a file, and a trainer that writes the results of each run."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from folders import evaluation, metric_rows, write_run

from rlcli.errors import OK, USER_ERROR
from rlcli.results.claims import is_finished
from rlcli.runs.study_record import Cell
from rlcli.studies import train_study
from rlcli.studies.study_loop import NOTHING_MORE, CellEnd, CellSource

POLE = """
environment: {name: CartPole-v1, num_envs: 4}
network: {name: mlp, layers: [8]}
updater: q_learning
train: {steps: 400, evaluate: {every: 200, episodes: 5}}
"""
STUDY = """
recipes: [pole.yaml, {name: large, recipe: pole.yaml}, {name: small, recipe: pole.yaml}]
seeds: 5
test: {baseline: pole, effect: 50, max_seeds: 30}
"""
# The result of a seed of a recipe on an environment.
Score = Callable[[str, str, int], float | None]


def write_files(folder: Path, study: str = STUDY) -> None:
    """The recipe and the study, as files."""
    (folder / "pole.yaml").write_text(POLE)
    (folder / "paper.yaml").write_text(study)


def score_noise(recipe: str, environment: str, seed: int) -> float:
    """`large` is better by 60, `small` equal, up to less than 20."""
    del environment
    noise = 37 * (seed + 3 * len(recipe)) % 41 / 5
    return 300 + noise + 60 * (recipe == "large")


class WrittenTraining:
    """Replaces the training of cells; `stop_after` ends it as if it were killed.

    The cell `failing` fails whenever it is trained.
    """

    def __init__(
        self,
        monkeypatch: Any,
        score: Score = score_noise,
        *,
        stop_after: int = 10**9,
        failing: str = "",
    ) -> None:
        self.score, self.left, self.failing = score, stop_after, failing
        self.trained: list[str] = []  # labels
        monkeypatch.setattr(train_study, "train_recorded", self)

    def __call__(
        self, cells: Sequence[Cell], source: CellSource = NOTHING_MORE, **_: Any
    ) -> list[CellEnd]:
        ended: list[CellEnd] = []
        while cells:
            for cell in cells:
                code = OK
                if not is_finished(cell):
                    if self.left == 0:
                        raise KeyboardInterrupt
                    self.left -= 1
                    self.trained.append(cell.label)
                    has_failed = cell.label == self.failing
                    shutil.rmtree(cell.folder, ignore_errors=True)
                    info = {"status": "failed"} if has_failed else {}
                    write_cell(cell, self.score, **info)
                    code = USER_ERROR if has_failed else OK
                ended.append(CellEnd(cell, code, ""))
            cells = source.choose(ended)
        return ended


def write_cell(cell: Cell, score: Score = score_noise, **info: Any) -> None:
    """Writes a finished run; `info` are other fields of `run.json`."""
    first = int(cell.values["train.seed"])
    recipe = cell.values.get("recipe", "pole")
    name = cell.values.get("environment", "CartPole-v1")
    seeds = {
        seed: [(400, found)]
        for seed in range(first, first + 5)
        if (found := score(recipe, name, seed)) is not None
    }
    rows = metric_rows(seeds, "avg_G")
    rows += [
        {"T": 400, "seed": seed, "evaluation": evaluation(points[0][1])}
        for seed, points in seeds.items()
    ]
    write_run(
        cell.folder,
        rows=rows,
        resolved=POLE.replace("CartPole-v1", name.partition(",")[0]),
        recipe="pole",
        seeds=[*range(first, first + 5)],
        cell={"label": cell.label, "values": dict(cell.values)},
        **info,
    )
