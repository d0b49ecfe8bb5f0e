"""Failures: detects seeds whose training has failed, and faults of environments.

A gradient step with a loss that is not finite is discarded, and so are all later ones:
`Learner.failed` stores the index of the failed update, and the parameters stay the last
finite ones. `Progress.faults` records each environment's first observation or reward
that is not finite, and on the host the first observation beyond its bounds (`faults`).
The cost is below what can be measured. `failures` compares the two, so that
the reason for a frozen seed depends on `Progress` only, not on when the run was logged.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlcli.environments.adapters.restarting import Restarts
from rlcli.loop.faults import NONE, Fault, first_not_finite, first_outside
from rlcli.loop.progress import Setup
from rlcli.recipe import Recipe
from rlcli.runs import checkpoint
from rlcli.runs.frozen import (
    FrozenSeed,
    FrozenSeeds,
    describe_frozen_seeds,
    suggest_remedy,
)
from rlcli.spaces import describe
from rlcli.types import ArrayTree
from rlcli.updaters.learner import NOT_FAILED

_MAX_RESTARTS = 3  # messages about restarts in a chunk


class Failures:
    """The frozen seeds of a run, and the warnings it has given.

    The record depends only on the progress of the run, not on the chunk boundaries:
    checkpoints contain it, and equal progress gives equal bytes.
    """

    def __init__(self, recipe: Recipe, setup: Setup) -> None:
        self.frozen: dict[int, FrozenSeed] = {}  # by seed
        self._recipe = recipe
        self._setup = setup
        self._environment = f"environment `{recipe.environment.name}`"
        self._warned = {"not_finite": False, "outside": False}
        self._end_reason = ""

    @property
    def reasons(self) -> dict[int, str]:
        """The reason of each frozen seed, by seed."""
        return {seed: record.reason for seed, record in self.frozen.items()}

    def frozen_field(self, seed: int) -> dict[str, str]:
        """The field that marks the results of a frozen seed; {} for other seeds."""
        return {"frozen": self.frozen[seed].reason} if seed in self.frozen else {}

    @property
    def summary(self) -> str:
        """The number of frozen seeds, and the reasons; "" if none is frozen."""
        return describe_frozen_seeds(self.frozen, len(self._setup.seeds))

    @property
    def remedy(self) -> str:
        """A hint against frozen seeds; "" if none is frozen."""
        return suggest_remedy(self._recipe, self.frozen)

    @property
    def end_reason(self) -> str:
        """Why the run cannot continue; "" if it can."""
        if self._end_reason:
            return self._end_reason
        if len(self.frozen) == len(self._setup.seeds):
            reasons = (f"seed {seed}: {text}" for seed, text in self.reasons.items())
            return f"all seeds are frozen: {'; '.join(reasons)}"
        if self.frozen and self._recipe.train.on_nan == "stop":
            return f"{self.summary}; `train.on_nan` is `stop`"
        return ""

    def end(self, reason: str) -> None:
        """Records why the run had failed before those trained with it are resumed."""
        self._end_reason = reason or "failed"

    def copy_from(self, other: Failures) -> None:
        """Takes the record of another run, whose state this one has copied."""
        self.frozen = dict(other.frozen)
        self._warned = dict(other._warned)

    def restore(self, frozen: FrozenSeeds, faults: Mapping[str, Any]) -> None:
        """Continues from a checkpoint; its faults have already caused warnings."""
        self.frozen = dict(frozen)
        for name, codes in faults.items():
            self._warned[name] = bool(np.any(np.asarray(codes) != NONE))

    def update(
        self,
        summary: Mapping[str, Any],
        iteration: int,
        acting_state: Callable[[], ArrayTree],
    ) -> list[str]:
        """Checks the summary of a chunk, and returns new messages."""
        messages = []
        for index, seed in enumerate(self._setup.seeds):
            failed = int(summary["failed"][index])
            finite = bool(summary["finite"][index])
            if seed in self.frozen or (failed == NOT_FAILED and finite):
                continue
            # The update that failed, even if it is detected later. Parameters that are
            # not finite after the last update make the next update fail.
            last = self._setup.agent.count_updates(iteration)
            update = last if failed == NOT_FAILED else failed
            what = _find_not_finite(acting_state(), index)
            codes = summary["faults"]["not_finite"][index]
            self.frozen[seed] = self._freeze(what, update, codes)
            messages.append(f"seed {seed} is frozen: {self.frozen[seed].reason}")
            self._warned["not_finite"] |= self.frozen[seed].environment
        return [*self._warnings(summary["faults"]), *messages]

    def _freeze(self, what: str, update: int, codes: np.ndarray) -> FrozenSeed:
        iterations = range(np.iinfo(np.int32).max)
        iteration = bisect.bisect_right(
            iterations, update, key=self._setup.agent.count_updates
        )
        step = iteration * self._setup.steps_per_iteration
        reason = f"{what} is not finite at update {update:,}, by step {step:,}"
        fault = first_not_finite(codes)
        # A fault after the failure is not its cause.
        if fault is None or fault.step > iteration * self._setup.unroll:
            return FrozenSeed(step, reason)
        reason += f": {self._environment} returned {self._describe_fault(fault)}"
        return FrozenSeed(step, reason, environment=True)

    def _warnings(self, faults: Mapping[str, np.ndarray]) -> list[str]:
        """New warnings: one for each kind of fault in the whole run."""
        messages = []
        for name, decode in (
            ("not_finite", first_not_finite),
            ("outside", first_outside),
        ):
            found = [
                (fault.step, index, fault)
                for index, codes in enumerate(faults[name])
                if (fault := decode(codes))
            ]
            if found and not self._warned[name]:
                self._warned[name] = True
                _, index, fault = min(found)
                messages.append(self._warning(name, index, fault))
        return messages

    def _warning(self, name: str, index: int, fault: Fault) -> str:
        seed = f"seed {self._setup.seeds[index]}, "
        if name == "not_finite":
            return f"{self._environment} returned {self._describe_fault(fault, seed)}"
        space = describe(self._setup.environment.own.observation)
        return (
            f"{self._environment} returned an observation outside its declared space "
            f"{space} ({seed}{self._place(fault)}); it is used unchanged, and this "
            "warning is not repeated"
        )

    def _describe_fault(self, fault: Fault, seed: str = "") -> str:
        return f"{fault.what} that is not finite ({seed}{self._place(fault)})"

    def _place(self, fault: Fault) -> str:
        """The index of the environment, and the step."""
        num_envs = self._setup.steps_per_iteration // self._setup.unroll
        step = f"step {fault.step * num_envs:,}" if fault.step else "its first reset"
        return f"environment {fault.environment}, {step}"


def _find_not_finite(acting: ArrayTree, index: int) -> str:
    """The first tensor of a seed that is not finite, else its loss."""
    for path, leaf in checkpoint.flatten_tree(acting).items():
        if not np.all(np.isfinite(leaf[index])):
            return f"`{path}`"
    return "the loss"


def describe_restarts(restarts: Restarts) -> list[str]:
    """Messages about the environments that were restarted in a chunk."""
    messages = [*restarts.messages]
    if (surplus := len(messages) - _MAX_RESTARTS) > 0:
        messages[_MAX_RESTARTS:] = [f"and {surplus} more restarts"]
    return messages
