"""Cases of combinations: a recipe is checked, trained, used, killed and resumed.

Every stage is a success or one clear error. The kill is that of `fault_injection`:
from a random operation on the files of the run, nothing changes on the disk any more.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from combination_recipes import COLLECTED, draw_combination
from fault_injection import PythonInjector
from fault_scenarios import interrupt, sharing_a_program
from fuzz_guard import FoundError, check_message
from gymnasium import spaces
from run_results import RunResult, differences, read_result

import rlcli
from rlcli.errors import RlcliError
from rlcli.evaluation.trained_policy import TrainedPolicy
from rlcli.recipe import load_recipe, resolve
from rlcli.runs import checkpoint
from rlcli.runs.run_folder import Run, is_run

_STEPS = 4  # whose actions of the run and of its export are compared
_TOLERANCE = 1e-3


class Outcome(NamedTuple):
    """How far a case came: `reason` says why not further, in the words of rlcli."""

    stage: str  # "refused", "valid", "failed" or "trained"
    reason: str = ""
    export: str = ""  # "exported", or why not
    resumed: str = ""  # "equal", or the reason why it was not killed


class Case:
    """A random recipe, and what is done with it in `folder`."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self._draw = random.Random(number)
        self._folder = folder
        self.recipe = draw_combination(self._draw)

    def run(self, *, trains: bool) -> Outcome:
        """Checks the recipe; with `trains` trains a valid one, and uses the result.

        Nine times in ten the interrupted run has the compiled program of the whole one.
        """
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        is_shared = self._draw.random() < 0.9
        try:
            resolved = resolve(load_recipe(self.recipe))
            again = resolve(load_recipe(resolved))
            if json.dumps(again) != json.dumps(resolved):  # in the same order
                raise FoundError("the resolved recipe does not resolve to itself")
            self._collect()
            if not trains:
                rlcli.check(self.recipe)
                return Outcome("valid")
        except RlcliError as error:
            check_message(error)
            return Outcome("refused", error.message)
        with sharing_a_program() if is_shared else contextlib.nullcontext():
            return self._train_and_use()

    def _train_and_use(self) -> Outcome:
        injector, whole = PythonInjector(), self._folder / "whole"
        try:
            with injector.inject(whole):
                self._train(whole)  # checks the recipe before it creates the run
        except RlcliError as error:
            check_message(error)
            stage = "failed" if is_run(whole) else "refused"
            return Outcome(stage, error.message)
        expected = read_result(whole)
        _check_numbers(whole, expected)
        policy = rlcli.load(whole, trust=True)
        self._evaluate(whole, policy)
        return Outcome(
            "trained",
            export=self._export(whole, policy),
            resumed=self._kill(injector.count, expected),
        )

    def _train(self, folder: Path) -> None:
        rlcli.train(self.recipe, run=folder, quiet=True)

    def _resume(self, folder: Path) -> None:
        rlcli.resume(folder, quiet=True, trust=True)

    def _collect(self) -> None:
        """Makes the data set of the recipe: random actions in its environment."""
        replay = self.recipe.get("replay", {})
        if replay.get("path") != COLLECTED:
            return
        replay["path"] = str(self._folder / COLLECTED)
        source = {
            "environment": self.recipe["environment"],
            "updater": "behaviour_cloning",
            "network": {"name": "mlp", "layers": [3]},
            "replay": {"name": "uniform", "capacity": 100, "batch_size": 4},
            "train": {"steps": 40, "start": 20, "evaluate": None},
        }
        run = rlcli.train(source, run=self._folder / "source", quiet=True)
        rlcli.collect(run, output=replay["path"], steps=60, random=True, trust=True)

    def _evaluate(self, run: Path, policy: TrainedPolicy) -> None:
        """Evaluates the policy, and plays the first of these episodes in `make_env`."""
        seed = rlcli.eval(run, episodes=2, trust=True)["seeds"][0]
        env = policy.make_env()
        observation, _ = env.reset(seed=0)
        state, total, ended = None, 0.0, False
        while not ended:
            action, state = policy.act(observation, state)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, ended = total + float(reward), terminated or truncated
        env.close()
        expected = seed["returns"][0]
        if not np.allclose(total, expected, _TOLERANCE, _TOLERANCE):
            raise FoundError(f"`eval` returned {expected}, `make_env` {total}")

    def _export(self, run: Path, policy: TrainedPolicy) -> str:
        """Exports the policy to NumPy, and compares actions; why not, if refused."""
        try:
            file = self._folder / "exported.py"
            rlcli.export(run, format="numpy", output=file, trust=True)
        except RlcliError as error:
            check_message(error)
            return error.message
        module = _import_file(file)
        env = policy.make_env()
        observation, _ = env.reset(seed=1)
        state = exported_state = None
        for _ in range(_STEPS):
            action, next_state = policy.act(observation, state)
            found, exported_state = module.act(observation, exported_state)
            _compare_actions(policy, observation, state, action, found)
            observation, _, terminated, truncated, _ = env.step(action)
            state = next_state
            if terminated or truncated:
                break
        env.close()
        return "exported"

    def _kill(self, operations: int, expected: RunResult) -> str:
        """Kills the run at two random operations, and resumes it to its end."""
        folder, injector = self._folder / "killed", PythonInjector()
        function: Callable[[Path], object] = self._train
        at = self._draw.randrange(1, operations + 1)
        # A run that is faster than the first writes its rows in fewer operations.
        while interrupt(injector, function, folder, "kill", at) != "killed":
            shutil.rmtree(folder)
            at //= 2
            if not at:
                raise FoundError(f"none of {operations} operations came again")
        if is_run(folder):
            function = self._resume
            for path in Run(folder).newest_first():
                checkpoint.read(path)
            # A second kill, while the run is resumed; sometimes it comes too late.
            interrupt(injector, function, folder, "kill", at // 3 + 5)
        function(folder)
        if different := differences(read_result(folder), expected):
            raise FoundError(f"resumed, but other {', '.join(different)}")
        return "equal"


def _import_file(file: Path) -> Any:
    specification = importlib.util.spec_from_file_location("exported", file)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _compare_actions(
    policy: TrainedPolicy, observation: Any, state: Any, action: Any, found: Any
) -> None:
    """Compares actions; equally good ones of a Discrete space may differ."""
    leaves, other = jax.tree.leaves(action), jax.tree.leaves(found)
    shapes = [[np.shape(leaf) for leaf in each] for each in (leaves, other)]
    if shapes[0] != shapes[1]:
        raise FoundError(f"exported actions have shapes {shapes[1]}, not {shapes[0]}")
    pairs = zip(leaves, other, strict=True)
    if all(np.allclose(a, b, _TOLERANCE, _TOLERANCE) for a, b in pairs):
        return
    if isinstance(policy.spaces.action, spaces.Discrete):
        values = _preferences(policy, observation, state)
        start = int(policy.spaces.action.start)
        chosen = values[[int(action) - start, int(found) - start]]
        if abs(chosen[0] - chosen[1]) <= _TOLERANCE * (1 + abs(chosen[0])):
            return
    raise FoundError(f"the run acts {action}, its export {found}")


def _preferences(policy: TrainedPolicy, observation: Any, state: Any) -> np.ndarray:
    """What a greedy policy maximizes, for each action."""
    try:
        return np.asarray(policy.action_values(observation, state))
    except RlcliError:
        distribution = policy.distribution(observation, state)
        return np.asarray(distribution.parameters)


def _check_numbers(run: Path, result: RunResult) -> None:
    """Checks that no number is NaN or infinite without being said."""
    info = Run(run).read_info()
    frozen = {int(seed) for seed in info.get("frozen") or {}}
    content = checkpoint.from_bytes(result.policies["policy.pkl.lz4"])
    seeds = [int(seed) for seed in content["seeds"]]
    for path, array in content["acting"].items():
        if array.dtype.kind != "f":
            continue
        finite = np.isfinite(array.reshape(len(array), -1)).all(axis=1)
        bad = {seed for seed, good in zip(seeds, finite, strict=True) if not good}
        if bad - frozen:
            raise FoundError(f"{path} of seeds {bad} is not finite, and not frozen")
    for row in result.rows:
        missing = [key for key, value in _flat(row).items() if value is None]
        if missing and row["seed"] not in frozen:
            raise FoundError(f"not finite in the row of step {row['T']}: {missing}")


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    result = {}
    for key, value in row.items():
        if isinstance(value, dict):
            result |= _flat(value, f"{prefix}{key}.")
        else:
            result[prefix + key] = value
    return result
