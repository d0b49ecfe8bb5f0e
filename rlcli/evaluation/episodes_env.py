"""Episodes environment: the episodes of `rlcli eval` as a Gymnasium environment."""

from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import TimeLimit

from rlcli import registry
from rlcli.assembly import build_core, build_environment, build_level_sampler
from rlcli.environments.adapters.host_vector import episode_seed
from rlcli.environments.to_gymnasium import CoreEnv
from rlcli.environments.vector import reset_key, step_key, values_at
from rlcli.errors import RlcliError
from rlcli.evaluation.make_evaluator import on_grid, resize, uniform_levels
from rlcli.loop.episode_records import evaluation_keys, evaluation_reset_seed
from rlcli.loop.evaluator import MAX_EPISODE_STEPS
from rlcli.recipe import Recipe
from rlcli.types import Array, ArrayTree, Clock, Core, TimeStep, wrap
from rlcli.xla.random_bits import unroll_key


def make_episodes_env(recipe: Recipe, clock: Clock, seed: int) -> gymnasium.Env:
    """Makes one environment of a recipe, with the episodes of an evaluation of `seed`.

    `reset(seed=s)` starts the first episode of `rlcli eval --seed s`, a first `reset()`
    that with s = 0, and every further `reset()` the next one.
    """
    recipe = uniform_levels(on_grid(recipe))
    part, single = recipe.environment, resize(recipe, 1)
    is_native = not registry.find(part.kind, part.name).facts.get("adapter")
    if is_native and single.num_envs == 1:
        return _NativeEpisodes(recipe, clock, seed)
    make = build_environment(single, 1, rendering=True).own.make
    if make is None:
        cause = "its library only makes vectors"
        if single.num_envs > 1:
            cause = f"it is a game of {single.num_envs} agents"
        elif recipe.wrappers:
            cause = "rlcli wraps vectors"
        raise RlcliError(
            f"environment `{part.name}` has no single environment: {cause}",
            "make a vector of it yourself; `act` takes batches of observations",
        )
    return _ExternalEpisodes(TimeLimit(make(), MAX_EPISODE_STEPS), seed)


class _Episodes:
    """Counts the episodes of an evaluation since the last `reset(seed=…)`."""

    def __init__(self, run_seed: int) -> None:
        self._run_seed = run_seed
        self.evaluation, self.index = 0, -1

    def next(self, seed: int | None) -> int:
        """Moves to the next episode; returns the seed of the evaluation's resets."""
        if seed is not None:
            self.evaluation, self.index = seed, -1
        self.index += 1
        return evaluation_reset_seed(self._run_seed, self.evaluation)


class _ExternalEpisodes(gymnasium.Wrapper, RecordConstructorArgs):
    """Seeds every episode of another library's environment as an evaluation does."""

    def __init__(self, env: gymnasium.Env, run_seed: int) -> None:
        RecordConstructorArgs.__init__(self, run_seed=run_seed)
        super().__init__(env)
        self._episodes = _Episodes(run_seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts the next episode, or with a seed the first one."""
        number = self._episodes.next(seed)
        first = episode_seed(number, self._episodes.index, 0)
        return self.env.reset(seed=first, options=options)


class _StepCounters(NamedTuple):
    """The counters that determine the random numbers of a step; the `key` of a core."""

    reset_seed: Array  # uint32
    evaluation: Array  # int32
    episode: Array  # int32: also the index of its environment in the evaluation
    time: Array  # int32: steps so far


class _NativeEpisodes(CoreEnv):
    """An environment of rlcli with the random numbers of an evaluation."""

    def __init__(self, recipe: Recipe, clock: Clock, run_seed: int) -> None:
        levels = build_level_sampler(recipe)

        def core_at(index: int | Array) -> Core:
            values = values_at(recipe.copies, index)
            return build_core(recipe, clock, values, rendering=True)

        def reset(counters: _StepCounters) -> tuple[ArrayTree, ArrayTree]:
            key = unroll_key(jax.random.key(counters.reset_seed))
            key = reset_key(key, counters.episode)
            if levels is not None:
                key = levels.keys(levels.begin(key[None]))[0]
            return core_at(counters.episode).reset(key)

        def step(
            state: ArrayTree, action: ArrayTree, counters: _StepCounters
        ) -> tuple[ArrayTree, TimeStep]:
            core, seed = core_at(counters.episode), np.array(run_seed, np.uint32)
            _, key = evaluation_keys(seed, counters.evaluation, counters.time)
            noise = core.draw(step_key(key, counters.episode))
            return core.step(state, action, noise)

        limit = recipe.time_limit
        assert limit != "default"  # only adapters have a default limit
        limit = MAX_EPISODE_STEPS if limit is None else min(limit, MAX_EPISODE_STEPS)
        core = wrap(core_at(0), keeps=["render"], reset=reset, step=step)
        super().__init__(core, limit, "rgb_array")
        # Lets libraries recreate the environment.
        self.spec = EnvSpec(
            "rlcli/Evaluated-v0",
            entry_point=lambda **_: _NativeEpisodes(recipe, clock, run_seed),
            disable_env_checker=True,
        )
        self._episodes = _Episodes(run_seed)
        self._reset_seed = self._time = 0

    def draw_reset_key(self, seed: int | None) -> _StepCounters:
        """The counters before the next episode, or with a seed before the first one."""
        self._reset_seed, self._time = self._episodes.next(seed), 0
        return self._counters()

    def draw_step_key(self) -> _StepCounters:
        """The counters of the next step."""
        counters = self._counters()
        self._time += 1
        return counters

    def _counters(self) -> _StepCounters:
        evaluation, episode = self._episodes.evaluation, self._episodes.index
        numbers = (
            np.array(number, np.int32) for number in (evaluation, episode, self._time)
        )
        return _StepCounters(np.array(self._reset_seed, np.uint32), *numbers)
