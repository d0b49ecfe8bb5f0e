"""Program: the compiled training of one run, or of several that are trained together.

Runs that differ in numbers only, such as the learning rate, have the same program: it
trains the seeds of all of them simultaneously, as if they were the seeds of one run.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from rlcli.assembly import check_environment, memory_usage
from rlcli.assembly.build_part import explain_user_errors
from rlcli.assembly.out_of_memory import (
    OutOfMemoryError,
    check_available_memory,
    limit_building,
)
from rlcli.assembly.shares import check_devices
from rlcli.errors import RlcliError
from rlcli.evaluation.make_evaluator import make_evaluator
from rlcli.loop import make_loop, vmap_seeds
from rlcli.loop.evaluator import EvaluationResult, Evaluator
from rlcli.loop.faults import is_finite
from rlcli.loop.log import Log, log_points
from rlcli.loop.progress import Progress, Setup
from rlcli.loop.seeds import drop_padding, take_seeds
from rlcli.networks.activations import name_layers
from rlcli.recipe import Recipe
from rlcli.runs import snapshots
from rlcli.runs.snapshots import CheckpointContent
from rlcli.training.experiment.first_steps import check_first_steps
from rlcli.training.experiment.initial_values import InitialValues
from rlcli.training.experiment.log_rows import policy_options_at
from rlcli.types import Array, ArrayTree, Clock, Inputs
from rlcli.xla import debugging, processes
from rlcli.xla.numeric_limits import INT32_MAX
from rlcli.xla.packing import PackedTree, Packing

ALL_SEEDS = slice(None)


class Program:
    """Trains the seeds of a setup, and evaluates their policies.

    `recipe` is the recipe of the run, or of one of the runs that are trained together.
    """

    def __init__(self, recipe: Recipe, setup: Setup) -> None:
        self.recipe = recipe
        self.setup = setup
        self.loop = make_loop(setup)
        self.iteration = 0
        self.memory: Sequence[memory_usage.Item] = ()  # set by `check`
        self.initial: InitialValues | None = None  # with which a new run starts
        self.debugs = False  # whether it runs without `jit`, and stops at NaN
        self.report_phase: Callable[[str], None] = lambda phase: None
        self._progress: Progress | None = None
        self._on_host: dict[str, ArrayTree] = {}  # copies of the current progress
        self._copying = threading.Lock()  # threads save several runs in parallel
        self._packed_summary = jax.jit(self._pack_summary)
        self._packing: Packing | None = None  # of the summary
        self._evaluator: Evaluator | None = None

    @property
    def step(self) -> int:
        """Environment steps of one seed so far; exact."""
        return self.iteration * self.setup.steps_per_iteration

    @property
    def evaluation_index(self) -> int:
        """The index of an evaluation at this step, an int32."""
        return self.step % (INT32_MAX + 1)

    @property
    def progress(self) -> Progress:
        """The current progress."""
        if self._progress is None:
            raise ValueError("expected an experiment that has begun")
        return self._progress

    def check(self) -> Progress:
        """Traces the whole program with shapes only, which detects incompatible parts.

        Refuses a program that needs more memory than available, and an environment that
        is not what its replay rebuilds, see `first_steps`.
        """
        check_devices(self.recipe, self.setup)
        with explain_user_errors(self.recipe):
            check_environment(self.recipe)
        try:
            with limit_building(self.recipe), explain_user_errors(self.recipe):
                shapes = self.loop.shapes()
                self.loop.temporary_bytes()
        except OutOfMemoryError:
            raise
        except RlcliError as error:
            raise self.recipe.locate_error(("updater",), error) from error
        self.memory = memory_usage.run_memory(self.recipe, self.setup, self.loop)
        check_available_memory("this run", self.memory, self.setup.all_devices)
        with explain_user_errors(self.recipe):
            check_first_steps(self.recipe, self.setup)
        return shapes

    def begin(self) -> None:
        """Starts at step 0."""
        # Waits, so that a failed allocation raises here.
        self._progress = jax.block_until_ready(self.loop.begin())

    def restore(self, saved: CheckpointContent) -> str:
        """Continues from a checkpoint; returns a message if this is inexact, or ""."""
        self._progress, message = snapshots.restore_progress(
            saved, self.recipe, self.setup, self.loop
        )
        self.iteration = int(self.progress.iteration)
        return message

    def replace_progress(self, progress: Progress) -> None:
        """Continues with another state of the same shapes, between two chunks."""
        self._on_host.clear()
        if self.setup.all_devices > 1:  # as `advance` returns them
            before = jax.tree.map(lambda leaf: leaf.sharding, self.progress)
            progress = jax.device_put(progress, before)
        self._progress = progress

    def current_numbers(self) -> dict[str, float]:
        """The numbers that are arguments of the program, those of the first seed."""
        numbers = np.asarray(processes.fetch(self.progress.numbers))
        values = numbers.reshape(-1, len(self.setup.numbers))[:1].ravel()
        return dict(zip(self.setup.numbers, values.tolist(), strict=True))

    def set_number(self, place: str, value: float) -> None:
        """Sets a number of all seeds, from the next iteration on."""
        numbers = np.array(processes.fetch(self.progress.numbers))
        numbers[..., [*self.setup.numbers].index(place)] = value
        self.replace_progress(self.progress._replace(numbers=numbers))

    def advance(self, points: Sequence[int]) -> tuple[dict[str, Any], tuple]:
        """Trains up to the last of increasing iterations, the log points.

        Returns the summary of the chunk, `_summarize`, as NumPy arrays without padding,
        and the times of its start and end.
        """
        before, start = self.iteration, time.perf_counter()
        self._on_host.clear()
        counts = [point - before for point in points]
        if self.debugs:
            self._progress, log = self._debug(counts)
        else:
            self._progress, log = self.loop.advance(self.progress, counts)
        self.iteration = points[-1]
        summary = self._fetch(log, points)
        return summary, (start, time.perf_counter())

    def _debug(self, counts: Sequence[int]) -> tuple[Progress, Log]:
        """Advances without `jit`; an `RlcliError` says where a number is not finite."""
        try:
            with debugging.debug(), name_layers():
                return self.loop.advance(self.progress, counts)
        except FloatingPointError as error:
            raise RlcliError(
                f"the first number that is not finite: {debugging.describe(error)}",
                "`breakpoint()` in that code stops before it: with `--debug` every "
                "array has its numbers",
            ) from error

    def _fetch(self, log: Log, points: Sequence[int]) -> dict[str, Any]:
        # Without the environment, whose state may not be a tree of arrays.
        progress = self.progress._replace(environment=())
        inputs = progress, log, log_points(points)
        if self._packing is None:
            self._packing = Packing(jax.eval_shape(self._summarize, *inputs))
        packed = processes.fetch(self._packed_summary(*inputs))
        return drop_padding(len(self.setup.seeds), self._packing.unpack(packed))

    def _pack_summary(self, *inputs: Any) -> PackedTree:
        """The summary packed into few arrays, because each fetched array has a cost."""
        assert self._packing is not None  # set by `_fetch`
        return self._packing.pack(self._summarize(*inputs))

    def _summarize(
        self, progress: Progress, log: Log, iterations: Array
    ) -> dict[str, Any]:
        """The summary of a chunk: `[P]` each, `[P, R]` for the R rows of its log.

        P is the number of padded seeds.
        """
        agent = self.setup.agent
        seeds = len(self.setup.padded_seeds)
        return {
            "failed": vmap_seeds(agent.failed_at, seeds, (0,), 0)(progress.agent),
            "finite": is_finite(agent.acting(progress.agent), seeds),
            "faults": progress.faults._asdict(),
            "log": log,
            "policy": policy_options_at(
                self.recipe, self.setup, log, iterations, progress.numbers
            ),
        }

    def acting_state(self, seeds: slice) -> ArrayTree:
        """The acting state of some seeds' policies, `[S, ...]`, on the host."""
        with self._copying:
            acting = self._on_host.get("acting")
            if acting is None:
                acting = processes.fetch(self.setup.agent.acting(self.progress.agent))
                acting = drop_padding(len(self.setup.seeds), acting)
                self._on_host["acting"] = acting
        return take_seeds(seeds, acting)

    def checkpoint_arrays(self, seeds: slice) -> ArrayTree:
        """The arrays in a checkpoint of some seeds, as `Loop.save` returns them."""
        if seeds == ALL_SEEDS:
            return self.loop.save(self.progress)
        with self._copying:
            if "checkpoint" not in self._on_host:
                arrays = jax.device_get(self.loop.save(self.progress))
                self._on_host["checkpoint"] = arrays
        return take_seeds(seeds, self._on_host["checkpoint"], self.setup.axes)

    def evaluate(self) -> EvaluationResult:
        """Evaluates the greedy policies of all seeds."""
        self.report_phase("evaluating")
        if self._evaluator is None:
            episodes = self.recipe.train.evaluate.episodes
            self._evaluator = make_evaluator(self.recipe, self.setup, episodes)
        return self._evaluator.evaluate(
            self.acting_state(ALL_SEEDS), self.evaluation_index, self.inputs(ALL_SEEDS)
        )

    def inputs(self, seeds: slice) -> Inputs:
        """The inputs of the current policies of some seeds, `[S]`, on the host.

        They have numbers only if each seed has its own.
        """
        numbers = self.progress.numbers if self.setup.has_own_numbers else ()
        arrays = processes.fetch((self.progress.statistics.episodes, numbers))
        arrays = drop_padding(len(self.setup.seeds), arrays)
        episodes, numbers = take_seeds(seeds, arrays)
        by_place = zip(self.setup.numbers, np.transpose(numbers), strict=False)
        clock = Clock.zero(len(episodes))._replace(
            steps=np.full(len(episodes), self.step, np.float32),
            episodes=np.asarray(episodes, np.float32),
        )
        return Inputs(clock, dict(by_place))

    def close(self) -> None:
        """Releases the resources of a host environment."""
        self.loop.close(self.progress)
