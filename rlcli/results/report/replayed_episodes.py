"""Episodes: returns of trained policies, and their best and worst episode, replayed."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete

from rlcli.environments.adapters.host_errors import close_or_warn
from rlcli.environments.rgb_image import to_rgb
from rlcli.errors import RlcliError
from rlcli.evaluation.evaluate import eval
from rlcli.evaluation.inspection.values import discount_of, discounted_returns
from rlcli.evaluation.load import load
from rlcli.evaluation.make_evaluator import resize_for
from rlcli.evaluation.trained_policy import TrainedPolicy
from rlcli.results.groups import Group, Member
from rlcli.results.report.frame_sheet import FrameSheet, FrameSheetMaker
from rlcli.runs.snapshots import snapshot_recipe

MAX_STEPS = 2_000  # of an episode that is replayed


class EpisodeOptions(NamedTuple):
    """The options of a report on episodes."""

    episodes: int
    seed: int
    best: bool
    trust: bool | None


class SeedResult(NamedTuple):
    """The returns of one seed's policy."""

    run: str
    seed: int
    returns: np.ndarray
    lengths: np.ndarray
    replayable: Sequence[int]  # the episodes that `make_env` can start
    is_frozen: bool


class EpisodeRecording(NamedTuple):
    """An episode with the policy's estimates before every step, `[steps]` each.

    Estimates are None where the policy has none; `reasons` say why.
    """

    run: str
    seed: int
    length: int  # of the evaluated episode, whose beginning `rewards` may be
    rewards: np.ndarray
    actions: np.ndarray | None  # `[steps, size]`; None unless they are plain arrays
    has_ended: bool
    has_terminated: bool
    values: np.ndarray | None
    action_values: np.ndarray | None  # `[steps, actions]`
    probabilities: np.ndarray | None  # `[steps, actions]`
    first_action: int  # the number of the first action, if they are Discrete
    discounted: np.ndarray | None  # Σ γᵏ r from each step on, with the recipe's γ
    frames: FrameSheet | None
    reasons: Sequence[str]

    @property
    def total(self) -> float:
        """The return of the replayed steps."""
        return float(self.rewards.sum())


def evaluate_group(
    group: Group,
    options: EpisodeOptions,
    notes: list[str],
    report_phase: Callable[[str], None],
) -> list[SeedResult]:
    """The returns of all seeds of a group; runs without a policy get a note.

    A seed that several runs of the group share counts once, from the newest run.
    """
    found: dict[tuple[str, int], SeedResult] = {}
    created = sorted(group.members, key=lambda each: str(each.info.get("created", "")))
    for member in reversed(created):
        report_phase(f"evaluating `{member.folder}`")
        try:
            results = [*_evaluate(member, options)]
        except RlcliError as error:
            notes.append(f"no episodes of `{member.folder}`: {error.message}")
            continue
        for result in results:
            found.setdefault((member.identity, result.seed), result)
    return sorted(found.values(), key=lambda each: (each.run, each.seed))


def _evaluate(member: Member, options: EpisodeOptions) -> Iterator[SeedResult]:
    result = eval(
        member.folder,
        best=options.best,
        episodes=options.episodes,
        seed=options.seed,
        trust=options.trust,
    )
    recipe = snapshot_recipe(Path(result["checkpoint"]), trust=options.trust)
    num_envs = resize_for(recipe, options.episodes).num_envs
    # Of each parallel environment its first episode.
    replayable = range(0, result["episodes"], result["episodes"] // num_envs)
    for row in result["seeds"]:
        yield SeedResult(
            str(member.folder),
            row["seed"],
            np.array(row["returns"], np.float64),
            np.array(row["lengths"]),
            replayable,
            row["frozen"] is not None,
        )


def choose_extremes(results: Sequence[SeedResult]) -> list[tuple[str, SeedResult, int]]:
    """The best and the worst episode that can be replayed; one if all are equal."""
    candidates = [
        (result.returns[index], result, place)
        for result in results
        for place, index in enumerate(result.replayable)
        if math.isfinite(result.returns[index])
    ]
    if not candidates:
        return []
    best = max(candidates, key=lambda each: each[0])
    worst = min(candidates, key=lambda each: each[0])
    if best[0] == worst[0]:
        return [("An episode", *best[1:])]
    return [("Best episode", *best[1:]), ("Worst episode", *worst[1:])]


def replay_episode(
    result: SeedResult, place: int, options: EpisodeOptions
) -> EpisodeRecording:
    """Runs one episode of an evaluation again, and records it."""
    policy = load(result.run, best=options.best, seed=result.seed, trust=options.trust)
    env = policy.make_env()
    length = int(result.lengths[result.replayable[place]])
    try:
        return _Recorder(policy, options.seed).record(env, result, place, length)
    finally:
        close_or_warn(f"environment `{policy.recipe['environment']['name']}`", env)


class _Recorder:
    """Records an episode of a policy."""

    def __init__(self, policy: TrainedPolicy, evaluation: int) -> None:
        self._policy, self._evaluation = policy, evaluation
        self._reasons: dict[str, str] = {}
        self._found: dict[str, list[Any]] = {}

    def record(
        self, env: Any, result: SeedResult, place: int, length: int
    ) -> EpisodeRecording:
        obs, _ = env.reset(seed=self._evaluation)
        for _ in range(place):
            obs, _ = env.reset()
        state = self._policy.initial_state(evaluation=self._evaluation)
        rewards, actions = [], []
        name = f"environment `{self._policy.recipe['environment']['name']}`"
        maker = FrameSheetMaker(
            lambda: to_rgb(env.render(), name), min(length, MAX_STEPS)
        )
        terminated = truncated = False
        for step in range(MAX_STEPS):
            maker.add(step)
            self._inspect(obs, state)
            action, state = self._policy.act(obs, state)
            actions.append(copy.deepcopy(action))  # `step` may change it in place
            obs, reward, terminated, truncated, _ = env.step(action)
            rewards.append(np.asarray(reward).item())
            if terminated or truncated:
                maker.add(step + 1, is_last=True)
                break
        frames, reason = maker.finish()
        reasons = [*self._reasons.values(), *([reason] if reason else [])]
        space, gamma = self._policy.spaces.action, discount_of(self._policy.recipe)
        discounted = None  # also if values are in another unit
        if gamma is not None and (terminated or truncated):
            discounted = discounted_returns(rewards, gamma)
        return EpisodeRecording(
            run=result.run,
            seed=result.seed,
            length=length,
            rewards=np.array(rewards),
            actions=_stack(actions),
            has_ended=terminated or truncated,
            has_terminated=terminated,
            values=self._column("value"),
            action_values=self._column("action_values"),
            probabilities=self._column("probabilities"),
            first_action=int(space.start) if isinstance(space, Discrete) else 0,
            discounted=discounted,
            frames=frames,
            reasons=reasons,
        )

    def _inspect(self, obs: Any, state: Any) -> None:
        """Records the policy's value estimates and probabilities at an observation."""
        for name, inspect in _INSPECTIONS.items():
            if name not in self._reasons:
                try:
                    value = np.asarray(inspect(self._policy, obs, state), np.float64)
                except RlcliError as error:
                    self._reasons[name] = error.message
                else:
                    self._found.setdefault(name, []).append(value)

    def _column(self, name: str) -> np.ndarray | None:
        return np.stack(self._found[name]) if name in self._found else None


_INSPECTIONS: Mapping[str, Callable[[TrainedPolicy, Any, Any], Any]] = {
    "value": lambda policy, obs, state: policy.value(obs, state),
    "action_values": lambda policy, obs, state: policy.action_values(obs, state),
    "probabilities": lambda policy, obs, state: (
        policy.distribution(obs, state).probabilities
    ),
}


def _stack(actions: Sequence[Any]) -> np.ndarray | None:
    """Actions as `[steps, size]`; None if they consist of several arrays."""
    if any(isinstance(action, dict | tuple) for action in actions):
        return None
    return np.stack([np.ravel(np.asarray(action)) for action in actions])
