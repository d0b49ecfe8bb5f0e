"""The state of host environments: all environments of all seeds and their episodes.

Every episode is seeded from (seed, environment, episode). These and the actions of an
episode restore it: the actions are replayed and the observations compared.
"""

import collections
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from rlcli.environments.adapters.conversion import (
    HostArray,
    action_flattener,
    map_tree,
    select_rows,
    write_rows,
)
from rlcli.environments.adapters.host_errors import (
    EnvironmentFailedError,
    ExternalEnvironment,
    close_or_warn,
    explain_error,
    original_error,
)
from rlcli.environments.adapters.info_recorder import InfoRecorder, InfoStatistics
from rlcli.environments.adapters.pools import HostVector, UnknownNumberError
from rlcli.environments.adapters.restarting import (
    RestartingVector,
    RestartRecord,
    Restarts,
)
from rlcli.environments.observation_image import observation_image
from rlcli.environments.rgb_image import to_rgb
from rlcli.errors import RlcliError, quote
from rlcli.spaces import zeros
from rlcli.spaces.canonical import Canonical
from rlcli.types import ArrayTree, Environment, InfoRule, TimeStep

MAX_NAMED = 3  # environments that a message names; it counts the others
_MAX_SEED = 2**30  # seeds of environments are less than this


def episode_seed(
    seed: int | np.integer, environment: int | np.integer, episode: int | np.integer
) -> int:
    """Returns the seed of an episode, a function of the three arguments."""
    return environment_seeds([int(seed), int(environment), int(episode)])[0]


def environment_seeds(entropy: int | Sequence[int] | None, count: int = 1) -> list[int]:
    """Returns random seeds for environments of other libraries.

    They have 30 bits, so that each is an int in C, also where a vector adds the index
    of an environment to it.
    """
    states = np.random.SeedSequence(entropy).generate_state(count)
    return (states % _MAX_SEED).tolist()


class HostVectorState:
    """The state of S×B host environments: `obs` `[S · B, ...]`, actions so far.

    `is_lost` marks environments whose episode could not be restored, or that failed.
    The next step truncates it at the observation before, with reward 0.
    """

    def __init__(
        self,
        external: ExternalEnvironment,
        action: Canonical,
        vector: HostVector,
        template: Environment,
        seeds: HostArray,
        info: Mapping[str, InfoRule] = MappingProxyType({}),
    ) -> None:
        """`template` has the canonical spaces, also that of `action`.

        `info` says what episodes log of the `info` that they report.
        """
        self.external = external
        self.vector = vector
        self._is_replayable = vector.is_replayable
        self.seeds = seeds
        self.grid = len(seeds), template.num_envs
        self._info = InfoRecorder(info, self.grid, external.name)
        self.count = len(seeds) * template.num_envs
        self.space = template.observation
        self._flatten_action = action_flattener(action.space, self.grid)
        self._to_native = action.to_external
        # Zeros in the shapes that `action_flattener` returns.
        self._action_template = jax.tree.map(
            np.asarray, zeros(template.action, (self.count,))
        )
        self.episode = np.zeros(self.count, np.int64)
        # One Python counter: an addition in NumPy takes 5 µs after an XLA program.
        self._steps = 0
        self._start_steps = np.zeros(self.count, np.int64)
        self.is_lost = np.zeros(self.count, np.bool_)
        self._has_lost = False
        # Of these, the rows whose episode could not be restored.
        self._unrestored = np.zeros(0, np.int64)
        # The actions of the longest episode; those of a row are the last `length`.
        # Empty if the vector is not replayable.
        self.history: collections.deque[ArrayTree] = collections.deque()
        self.obs: ArrayTree = None
        self._parameters: dict[str, HostArray] = {}  # [S · B], see `parameters`
        self._restarts: RestartRecord | None = None
        if isinstance(vector, RestartingVector):
            self._restarts = RestartRecord(len(seeds))
            vector.report = self._record_restart
        # The final states of the episodes that ended last, for `render_final`.
        self._final_obs: ArrayTree = None
        self._final_images: dict[int, HostArray] = {}

    @property
    def length(self) -> HostArray:
        """The steps of each environment's episode so far, `[S · B]`."""
        return self._steps - self._start_steps

    def take_restarts(self) -> Restarts | None:
        """The restarts so far; None if a failure ends the run."""
        return self._restarts and self._restarts.take(self._steps)

    def info_statistics(self) -> InfoStatistics:
        """What the finished episodes of the run have logged of `info`."""
        return self._info.statistics()

    def _record_restart(
        self, rows: HostArray, method: str, error: BaseException
    ) -> None:
        """Records that environments failed and are restarted."""
        assert self._restarts is not None  # only a restarting vector calls it
        ending = f"{len(rows)} environments are" if len(rows) > 1 else "it is"
        message = f"{self._wrap_error(method, error).message}; {ending} restarted"
        seeds = np.unique(rows // self.grid[1])
        self._restarts.add(seeds, self._steps + (method == "step"), message)
        self.is_lost[rows] = self._has_lost = True

    def begin(self) -> ArrayTree:
        """Starts episode 0 of every environment; returns obs `[S, B, ...]`."""
        self.obs = self._begin_episodes(np.arange(self.count))
        return map_tree(self._to_grid, self.obs)

    def step(self, action: ArrayTree, cut: HostArray | bool = False) -> TimeStep:
        """Steps all environments, with action `[S, B, ...]`.

        Where `cut`, broadcast to `[S, B]`, the caller truncates the episode: a new one
        begins as where `last`, which is only what the environment ends.
        """
        # Copied, since it is stored and the caller's buffer may be donated.
        actions = self._flatten_action(action)
        timestep = self._call_vector("step", self._to_native(actions), sent=actions)
        if self._is_replayable:
            self.history.append(actions)
        self._steps += 1
        self._info.record(timestep.info)
        next_obs = timestep.obs
        reward = np.array(timestep.reward, np.float32)
        discount = np.array(timestep.discount, np.float32)
        last = np.array(timestep.last, np.bool_)
        if self._has_lost:
            lost = self.is_lost
            reward[lost], discount[lost] = 0, 1
            next_obs = map_tree(np.copy, next_obs)  # the vector may still use its own
            write_rows(next_obs, lost, select_rows(self.obs, lost))
            last |= lost
            self._info.drop(self._unrestored)
            self._unrestored = self._unrestored[:0]
        has_ended = last
        if cut is not False:
            has_ended = last | np.broadcast_to(cut, self.grid).ravel()
        self.obs = next_obs
        obs = last_obs = map_tree(self._to_grid, next_obs)
        done_rows, info = has_ended.nonzero()[0], {}
        if len(done_rows):
            info = self._info.finish(done_rows, self.length[done_rows])
            self.obs = self._begin_next(next_obs, done_rows)
            obs = map_tree(self._to_grid, self.obs)
        return TimeStep(
            obs=obs,
            next_obs=last_obs,
            reward=reward.reshape(self.grid),
            discount=discount.reshape(self.grid),
            last=last.reshape(self.grid),
            info=info,
        )

    def _begin_next(self, obs: ArrayTree, done_rows: HostArray) -> ArrayTree:
        """Starts new episodes in `done_rows`; returns the current observations."""
        if self.vector.can_render:  # only before the next episode starts
            self._final_images = {row: self.render(row) for row in done_rows.tolist()}
        self._final_obs = obs
        obs = map_tree(np.copy, obs)
        self.episode[done_rows] += 1
        self._start_steps[done_rows] = self._steps
        write_rows(obs, done_rows, self._begin_episodes(done_rows))
        for _ in range(len(self.history) - int(self.length.max())):
            self.history.popleft()
        return obs

    def save(self) -> dict[str, HostArray]:
        """Returns the arrays that `restore` needs.

        Actions are `[S, B, L, ...]`, those of an episode at the end, padded with zeros
        in front. L is the length of the longest episode, or 0 if the vector is not
        replayable.
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

        restarts, obs = self._restarts, map_tree(np.copy, self.obs)
        obs = map_tree(self._to_grid, obs)
        return {
            **({"restarts": restarts.counts.copy()} if restarts else {}),
            **self._info.save(),
            "seeds": self.seeds.copy(),
            "episode": self._to_grid(self.episode).copy(),
            "length": self._to_grid(self.length).copy(),
            **_named_leaves("actions", jax.tree.map(to_arrays, past)),
            **_named_leaves("obs", obs),
        }

    def restore(self, arrays: Mapping[str, HostArray]) -> str:
        """Restores episodes by replaying; returns a warning about those it could not.

        Those are `is_lost`, at the saved observation.
        """
        if self._restarts and "restarts" in arrays:
            self._restarts.counts[:] = arrays["restarts"]
        self.episode = np.array(arrays["episode"], np.int64).ravel()
        self._start_steps = self._steps - np.array(arrays["length"], np.int64).ravel()
        self._info.restore(arrays, (arrays["episode"] > 0).any(axis=1))
        current_obs = self._begin_episodes(np.arange(self.count))
        saved_obs = jax.tree.map(
            lambda name, like: np.array(arrays[name], like.dtype).reshape(like.shape),
            _leaf_names("obs", current_obs),
            current_obs,
        )

        def to_rows(name: str, like: HostArray) -> HostArray:
            leaf = np.array(arrays[name], like.dtype)
            # Not −1 for the length: an action may have no entries.
            return leaf.reshape((self.count, *leaf.shape[2:3], *like.shape[1:]))

        template = self._action_template
        actions = jax.tree.map(to_rows, _leaf_names("actions", template), template)
        longest = jax.tree.leaves(actions)[0].shape[1]
        past = [jax.tree.map(lambda x, t=t: x[:, t], actions) for t in range(longest)]
        lost = np.ones(self.count, np.bool_)
        if self._is_replayable:
            self.history.extend(past)
            is_intact = self._replay(past, current_obs)
            lost = ~is_intact | ~_rows_equal(current_obs, saved_obs)
            # The environments of a group only begin together.
            lost = lost.reshape(-1, self.vector.group).any(axis=1)
            lost = lost.repeat(self.vector.group)
            self._info.drop(lost)
        self._unrestored = lost.nonzero()[0]
        if len(self._unrestored):  # a vector may refuse to step ended episodes
            self._begin_episodes(self._unrestored)
            self.is_lost |= lost
            self._has_lost = True
        self.obs = saved_obs
        return self._describe_lost()

    def _replay(self, past: list[ArrayTree], current_obs: ArrayTree) -> HostArray:
        """Replays the actions and updates `current_obs`; marks the intact episodes.

        All replays finish simultaneously: an episode starts when the number of
        remaining steps equals its length. It is intact if it does not end early.
        """
        is_intact = np.ones(self.count, np.bool_)
        for time, action in enumerate(past):
            left = len(past) - time
            is_replaying = (self.length >= left) & is_intact
            timestep = self._call_vector("step", self._to_native(action))
            self._info.record(timestep.info)
            seen = select_rows(timestep.obs, is_replaying)
            write_rows(current_obs, is_replaying, seen)
            ended_rows = np.array(timestep.last, np.bool_) | self.is_lost
            is_intact &= ~(ended_rows & is_replaying)
            # Also ended episodes that are not replayed: the vector steps them again.
            restart_rows = np.flatnonzero(ended_rows | (self.length == left - 1))
            if len(restart_rows):
                self._info.drop(restart_rows)
                begun = self._begin_episodes(restart_rows)
                write_rows(current_obs, restart_rows, begun)
        return is_intact

    def render(self, index: int) -> HostArray:
        """Renders an environment as `[H, W, 3]` uint8, or else its observation."""
        if not self.vector.can_render:
            return observation_image(self.space, select_rows(self.obs, index))
        return to_rgb(self._call_vector("render", index), self.external.name)

    def render_final(self, index: int) -> HostArray | None:
        """Renders the final state of an episode that the last step ended."""
        if self.vector.can_render:
            return self._final_images.get(index)
        return observation_image(self.space, select_rows(self._final_obs, index))

    def close(self) -> None:
        """Closes all environments; an error is a warning."""
        close_or_warn(self.external.name, self.vector)

    def label(self, index: int, *, with_step: bool = False) -> str:
        """Describes an environment, for messages; its next step, if `with_step`."""
        row, column = divmod(index, self.grid[1])
        step = f", step {self.length[index] + 1}" if with_step else ""
        return (
            f"{self.external.name} (number {column} of seed {self.seeds[row]}, "
            f"episode {self.episode[index]}{step})"
        )

    def _begin_episodes(self, indices: HostArray) -> ArrayTree:
        """Starts the current episodes of environments; returns their observations."""
        rows, columns = np.divmod(indices, self.grid[1])
        seeds = [
            episode_seed(self.seeds[row], column, int(self.episode[index]))
            for index, row, column in zip(indices, rows, columns, strict=True)
        ]
        if self.external.draw is not None:
            drawn = [self.external.draw(seed) for seed in seeds]
            for name in drawn[0] if drawn else ():
                old = self._parameters.get(name, np.zeros(self.count, np.float32))
                new = old.copy()  # JAX may still read the other
                new[indices] = [numbers[name] for numbers in drawn]
                self._parameters[name] = new
        first = self._call_vector("begin", indices, seeds)
        if self._has_lost:
            self.is_lost[indices] = False
            self._has_lost = bool(self.is_lost.any())
        return first

    def parameters(self) -> dict[str, HostArray]:
        """The numbers that the current episodes have drawn, `[S, B]` of each."""
        return map_tree(self._to_grid, self._parameters)

    def set_number(self, name: str, value: float) -> None:
        """Sets a number of all environments, as `pools.set_number`."""
        set_in_vector = getattr(self.vector, "set_number", None)
        if set_in_vector is None:
            message = f"the numbers of {self.external.name} cannot be set while it runs"
            raise RlcliError(message, "its library steps many environments as one")
        try:
            set_in_vector(name, value)
        except UnknownNumberError as error:
            raise RlcliError(
                f"{self.external.name} has no number {quote(name)}",
                f"a hook sets an attribute `{name}` that is a number, or calls a "
                f"method `set_{name}(value)`",
            ) from error
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code
            raise self._wrap_error(f"set_{name}", error) from original_error(error)

    def _call_vector(self, method: str, *args: Any, sent: ArrayTree = ()) -> Any:
        """Calls the vector; errors name the environment and its position.

        `sent` are the canonical actions of a step.
        """
        try:
            return getattr(self.vector, method)(*args)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code
            raise self._wrap_error(method, error, sent) from original_error(error)

    def _wrap_error(
        self, method: str, error: BaseException, action: ArrayTree = ()
    ) -> RlcliError:
        """Converts an error that the vector raised into an `RlcliError`."""
        name, method = self.external.name, "reset" if method == "begin" else method
        index = None
        if isinstance(error, EnvironmentFailedError):
            index, method = error.index, error.method
            name = self.label(index, with_step=method == "step")
        cause = ""
        if method == "step":
            rows = slice(None) if index is None else [index]
            cause = self._describe_cause(rows, action)
        return explain_error(self.external, name, method, original_error(error), cause)

    def _describe_cause(self, index: Any, action: ArrayTree) -> str:
        """The likely cause of a failed step: an action or observation with a NaN."""
        if not _is_finite(select_rows(action, index)):
            return "; its action was not finite"
        if not _is_finite(select_rows(self.obs, index)):
            return "; its previous observation was not finite"
        return ""

    def _to_grid(self, leaf: HostArray) -> HostArray:
        return leaf.reshape(self.grid + leaf.shape[1:])

    def _describe_lost(self) -> str:
        lost = [self.label(int(index)) for index in np.flatnonzero(self.is_lost)]
        if not lost:
            return ""
        more = f" and {len(lost) - MAX_NAMED} more" if len(lost) > MAX_NAMED else ""
        reason = "it is not possible to restore"
        if self._is_replayable:
            reason = "replaying the actions did not restore"
        return (
            f"{reason} {', '.join(lost[:MAX_NAMED])}{more}: {len(lost)} of "
            f"{self.count} episodes end here, and new ones begin"
        )


def _is_finite(tree: ArrayTree) -> bool:
    return all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(tree))


def _rows_equal(current: ArrayTree, saved: ArrayTree) -> HostArray:
    """Compares rows, with NaN equal to NaN: bool `[N]`."""
    matches = []
    for a, b in zip(jax.tree.leaves(current), jax.tree.leaves(saved), strict=True):
        is_equal = (a == b) | ((a != a) & (b != b))
        matches.append(is_equal.all(axis=tuple(range(1, is_equal.ndim))))
    return np.all(matches, axis=0)


def _leaf_names(name: str, tree: ArrayTree) -> ArrayTree:
    """The keys of a tree's leaves in `save`."""
    leaves, structure = jax.tree.flatten(tree)
    if len(leaves) == 1:
        return structure.unflatten([name])
    return structure.unflatten([f"{name}.{index}" for index in range(len(leaves))])


def _named_leaves(name: str, tree: ArrayTree) -> dict[str, HostArray]:
    names = jax.tree.leaves(_leaf_names(name, tree))
    return dict(zip(names, jax.tree.leaves(tree), strict=True))
