"""Copies: a pool's environments with the episodes they are in, for all seeds.

Every episode is seeded from (seed, environment, episode). So what brings it back are
these and its actions: they are replayed, and what comes out is compared.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium.error import DependencyNotInstalled

from rlcli.environments.adapters.conversion import (
    AnswerError,
    HostArray,
    action_flattener,
    map_tree,
    native_converter,
)
from rlcli.environments.adapters.limits import StepTimeoutError
from rlcli.environments.adapters.pools import EnvironmentFailedError, HostVector
from rlcli.environments.observation_image import observation_image
from rlcli.errors import RlcliError
from rlcli.spaces import zeros
from rlcli.types import ArrayTree, Environment, TimeStep

MAX_NAMED = 3  # how many environments a sentence names before it only counts them


def episode_seed(seed: int, environment: int, episode: int) -> int:
    """The seed of one episode: 32 bits that depend on nothing but these three."""
    sequence = np.random.SeedSequence([int(seed), int(environment), int(episode)])
    return int(sequence.generate_state(1)[0])


class ExternalEnvironment(NamedTuple):
    """What messages say of environments of somebody else's."""

    name: str  # such as "environment `gymnasium/CartPole-v1`"
    install: str  # what brings all that they need to work and to be drawn
    timeout: float | None = None  # seconds that a step of one may take


class HostVectorState:
    """The state of a host environment: S×B copies, `obs` `[S · B, ...]`, their past.

    `is_lost` are those that are not where their episode should be.
    """

    def __init__(
        self,
        external: ExternalEnvironment,
        action: gymnasium.Space,
        vector: HostVector,
        template: Environment,
        seeds: HostArray,
    ) -> None:
        """`action` is the environments' own space; `template` has those that parts
        see.
        """
        self.external = external
        self.vector = vector
        self._is_replayable = vector.is_replayable
        self.seeds = seeds
        self.grid = len(seeds), template.num_envs
        self.count = len(seeds) * template.num_envs
        self.space = template.observation
        self._flatten_action = action_flattener(action, self.grid)
        self._to_native = native_converter(action)
        # The shape of what is `action_flattener`: zeros.
        self._action_template = jax.tree.map(
            lambda leaf: np.zeros((self.count, *leaf.shape), leaf.dtype),
            zeros(template.action),
        )
        self.episode = np.zeros(self.count, np.int64)
        # Counted for all at once: an addition of NumPy's takes 5 µs after XLA's work.
        self._steps = 0
        self._start_steps = np.zeros(self.count, np.int64)
        self.is_lost = np.zeros(self.count, np.bool_)
        self._has_lost = False
        # The actions of the longest episode; a row's own are the last `length`. None of
        # a pool that they would not bring back.
        self.history: collections.deque[ArrayTree] = collections.deque()
        self.obs: ArrayTree = None
        # How the episodes that ended last came to their end, for `render_final`.
        self._final_obs: ArrayTree = None
        self._final_pictures: dict[int, HostArray] = {}

    @property
    def length(self) -> HostArray:
        """How many steps each has made of its episode, `[S · B]`."""
        return self._steps - self._start_steps

    def begin(self) -> ArrayTree:
        """Begins episode 0 of every copy; returns obs `[S, B, ...]`."""
        self.obs = self._begin_episodes(np.arange(self.count))
        return map_tree(self._to_grid, self.obs)

    def step(self, action: ArrayTree, cut: bool = False) -> TimeStep:
        """One step of every copy, with action `[S, B, ...]`; `cut` truncates all."""
        # Copied, for it is kept: the caller's buffer may be donated.
        actions = self._flatten_action(action)
        try:
            timestep = self.vector.step(self._to_native(actions))
        except Exception as error:  # noqa: BLE001 - foreign code may raise anything
            raise self._wrap_error("step", error, actions) from _original_error(error)
        if self._is_replayable:
            self.history.append(actions)
        self._steps += 1
        next_obs = timestep.obs
        reward = np.array(timestep.reward, np.float32)
        discount = np.array(timestep.discount, np.float32)
        last = np.array(timestep.last, np.bool_)
        if cut or self._has_lost:
            lost = self.is_lost
            reward[lost], discount[lost] = 0, 1
            next_obs = map_tree(np.copy, next_obs)  # the pool may still need its own
            _write_rows(next_obs, lost, _select_rows(self.obs, lost))
            last |= lost | cut
        self.obs = next_obs
        obs = last_obs = map_tree(self._to_grid, next_obs)
        done_rows = last.nonzero()[0]
        if len(done_rows):
            self.obs = self._begin_next(next_obs, done_rows)
            obs = map_tree(self._to_grid, self.obs)
        return TimeStep(
            obs=obs,
            next_obs=last_obs,
            reward=reward.reshape(self.grid),
            discount=discount.reshape(self.grid),
            last=last.reshape(self.grid),
            info={},
        )

    def _begin_next(self, obs: ArrayTree, done_rows: HostArray) -> ArrayTree:
        """The observations to act upon: of new episodes, in the copies in
        `done_rows`.
        """
        if (
            self.vector.can_render
        ):  # built with `rendering`: before the next episode begins
            self._final_pictures = {int(each): self.render(each) for each in done_rows}
        self._final_obs = obs
        obs = map_tree(np.copy, obs)
        self.episode[done_rows] += 1
        self._start_steps[done_rows] = self._steps
        self.is_lost[done_rows] = self._has_lost = False
        _write_rows(obs, done_rows, self._begin_episodes(done_rows))
        for _ in range(len(self.history) - int(self.length.max())):
            self.history.popleft()
        return obs

    def save(self) -> dict[str, HostArray]:
        """What brings them back.

        Actions are `[S, B, L, ...]`, those of an episode at the end, zeros before it; L
        differs from one checkpoint to the next, and is 0 where they bring nothing back.
        """
        longest = len(self.history)
        past = jax.tree.map(
            lambda like, *leaves: np.stack([like, *leaves])[1:],
            self._action_template,
            *self.history,
        )
        is_played = np.arange(longest)[:, None] >= longest - self.length

        def to_arrays(leaf: HostArray) -> HostArray:
            mask = is_played.reshape(is_played.shape + (1,) * (leaf.ndim - 2))
            leaf = np.moveaxis(np.where(mask, leaf, 0).astype(leaf.dtype), 0, 1)
            return leaf.reshape(self.grid + leaf.shape[1:])

        return {
            "seeds": self.seeds.copy(),
            "episode": self._to_grid(self.episode).copy(),
            "length": self._to_grid(self.length).copy(),
            **_named_leaves("actions", jax.tree.map(to_arrays, past)),
            **_named_leaves(
                "obs", map_tree(np.copy, map_tree(self._to_grid, self.obs))
            ),
        }

    def restore(self, arrays: Mapping[str, HostArray]) -> str:
        """Brings them back by replaying; returns a sentence about those it could not.

        A copy that is not where it was is `is_lost`: its next step ends the episode at
        the saved observation, truncated, with reward 0.
        """
        self.episode = np.array(arrays["episode"], np.int64).ravel()
        self._start_steps = self._steps - np.array(arrays["length"], np.int64).ravel()
        current_obs = self._begin_episodes(np.arange(self.count))
        was = jax.tree.map(
            lambda name, like: np.array(arrays[name], like.dtype).reshape(like.shape),
            _leaf_names("obs", current_obs),
            current_obs,
        )
        actions = jax.tree.map(
            lambda name, like: np.array(arrays[name], like.dtype).reshape(
                (self.count, -1, *like.shape[1:])
            ),
            _leaf_names("actions", self._action_template),
            self._action_template,
        )
        longest = jax.tree.leaves(actions)[0].shape[1]
        past = [jax.tree.map(lambda x, t=t: x[:, t], actions) for t in range(longest)]
        self.is_lost[:] = True
        if self._is_replayable:
            self.history.extend(past)
            self.is_lost = ~self._replay(past, current_obs) | ~_rows_equal(
                current_obs, was
            )
        self._has_lost = bool(self.is_lost.any())
        if self._has_lost:  # else a pool that steps all of them may refuse to
            self._begin_episodes(np.flatnonzero(self.is_lost))
        self.obs = was
        return self._describe_lost()

    def _replay(self, past: list[ArrayTree], current_obs: ArrayTree) -> HostArray:
        """Plays the actions again, changes `current_obs`; which episodes lasted them
        out.

        All come to their end at once: an episode begins when so many steps are left as
        it is long.
        """
        is_intact = np.ones(self.count, np.bool_)
        for time, action in enumerate(past):
            left = len(past) - time
            is_replaying = (self.length >= left) & is_intact
            timestep = self._call_vector("step", self._to_native(action))
            _write_rows(
                current_obs, is_replaying, _select_rows(timestep.obs, is_replaying)
            )
            ended_rows = np.array(timestep.last, np.bool_)
            is_intact &= ~(ended_rows & is_replaying)
            # Also what has only passed the time: it is to be stepped once more.
            restart_rows = np.flatnonzero(ended_rows | (self.length == left - 1))
            if len(restart_rows):
                _write_rows(
                    current_obs, restart_rows, self._begin_episodes(restart_rows)
                )
        return is_intact

    def render(self, index: int) -> HostArray:
        """A picture `[H, W, 3]` uint8 of one copy: its own, or of its observation."""
        if not self.vector.can_render:
            return observation_image(self.space, _select_rows(self.obs, index))
        image = self._call_vector("render", index)
        if not isinstance(image, np.ndarray) or image.ndim != 3:
            raise RlcliError(f"{self.external.name} draws no picture of itself")
        return image.astype(np.uint8)

    def render_final(self, index: int) -> HostArray | None:
        """The picture of the final state of an episode that the last step ended."""
        if self.vector.can_render:
            return self._final_pictures.get(index)
        return observation_image(self.space, _select_rows(self._final_obs, index))

    def close(self) -> None:
        """Closes every copy."""
        self.vector.close()

    def label(self, index: int) -> str:
        """Which copy it is, for messages."""
        row, column = divmod(index, self.grid[1])
        return (
            f"{self.external.name} (number {column} of seed {self.seeds[row]}, "
            f"episode {self.episode[index]})"
        )

    def _begin_episodes(self, indices: HostArray) -> ArrayTree:
        """Begins the episodes that copies are in; their observations, as shown."""
        rows, columns = np.divmod(indices, self.grid[1])
        seeds = [
            episode_seed(self.seeds[row], column, int(self.episode[index]))
            for index, row, column in zip(indices, rows, columns, strict=True)
        ]
        return self._call_vector("begin", indices, seeds)

    def _call_vector(self, method: str, *args: Any) -> Any:
        """Calls the pool; what its environments raise gets their name and place."""
        try:
            return getattr(self.vector, method)(*args)
        except Exception as error:  # noqa: BLE001 - foreign code may raise anything
            raise self._wrap_error(method, error) from _original_error(error)

    def _wrap_error(
        self, method: str, error: BaseException, action: ArrayTree = ()
    ) -> RlcliError:
        """What is said of an error that the pool raised."""
        name, method = self.external.name, "reset" if method == "begin" else method
        index = None
        if isinstance(error, EnvironmentFailedError):
            index, name, method = error.index, self.label(error.index), error.method
        error = _original_error(error)
        if isinstance(error, AnswerError):
            where = f"`{method}`"
            if method == "step" and index is not None:
                where = f"step {self.length[index] + 1}"
            return RlcliError(
                f"{name} returned in {where} {error}",
                "the environment has to return observations of its declared space, and "
                "numbers as rewards; a wrapper around it can convert them",
            )
        if isinstance(error, StepTimeoutError):
            return RlcliError(
                f"{name} took longer than {self.external.timeout:g} s for a `{method}`",
                "`timeout` under `environment:` says how long it may take",
            )
        hint = ""
        if isinstance(error, ImportError | DependencyNotInstalled):
            hint = f'pip install "{self.external.install}"'
        elif "OpenGL" in str(error):
            hint = "without a display MuJoCo draws where `MUJOCO_GL=egl` is set"
        message = f"{name} failed in `{method}`: {type(error).__name__}: {error}"
        if method == "step":
            message += self._suspicion(
                slice(None) if index is None else [index], action
            )
        return RlcliError(message, hint)

    def _suspicion(self, which: Any, action: ArrayTree) -> str:
        """What may have made a step fail: an action or observation with a NaN."""
        if not _is_finite(_select_rows(action, which)):
            return "; its action was not finite"
        if not _is_finite(_select_rows(self.obs, which)):
            return "; the observation that it had returned before was not finite"
        return ""

    def _to_grid(self, leaf: HostArray) -> HostArray:
        return leaf.reshape(self.grid + leaf.shape[1:])

    def _describe_lost(self) -> str:
        lost = [self.label(int(index)) for index in np.flatnonzero(self.is_lost)]
        if not lost:
            return ""
        more = f" and {len(lost) - MAX_NAMED} more" if len(lost) > MAX_NAMED else ""
        why = (
            "replaying the actions did not" if self._is_replayable else "nothing could"
        )
        return (
            f"{why} bring back {', '.join(lost[:MAX_NAMED])}{more}: {len(lost)} of "
            f"{self.count} episodes end here, and new ones begin"
        )


def _original_error(error: BaseException) -> BaseException:
    """The environment's own error, where a pool says which environment raised it."""
    cause = error.__cause__
    return cause if isinstance(error, EnvironmentFailedError) and cause else error


def _select_rows(tree: ArrayTree, index: Any) -> ArrayTree:
    return map_tree(operator.itemgetter(index), tree)


def _write_rows(tree: ArrayTree, index: HostArray, rows: ArrayTree) -> None:
    """Writes rows into arrays."""
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(rows), strict=True)
    for leaf, new in pairs:
        leaf[index] = new


def _is_finite(tree: ArrayTree) -> bool:
    return all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(tree))


def _rows_equal(current: ArrayTree, was: ArrayTree) -> HostArray:
    """Which rows are the same, a NaN equal to a NaN: a bool `[N]`."""
    matches = []
    for a, b in zip(jax.tree.leaves(current), jax.tree.leaves(was), strict=True):
        is_equal = (a == b) | ((a != a) & (b != b))  # a NaN is no number's equal
        matches.append(is_equal.reshape((len(a), -1)).all(axis=1))
    return np.all(matches, axis=0)


def _leaf_names(name: str, tree: ArrayTree) -> ArrayTree:
    """The keys that the leaves of a tree are saved under."""
    leaves, structure = jax.tree.flatten(tree)
    if len(leaves) == 1:
        return structure.unflatten([name])
    return structure.unflatten([f"{name}.{index}" for index in range(len(leaves))])


def _named_leaves(name: str, tree: ArrayTree) -> dict[str, HostArray]:
    names = jax.tree.leaves(_leaf_names(name, tree))
    return dict(zip(names, jax.tree.leaves(tree), strict=True))
