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
    mapped,
    native,
    taken,
)
from rlcli.environments.adapters.limits import OverdueError
from rlcli.environments.adapters.pools import FailedError, Pool
from rlcli.environments.observation_image import picture
from rlcli.errors import RlcliError
from rlcli.spaces import zeros
from rlcli.types import ArrayTree, Environment, TimeStep

NAMED = 3  # how many environments a sentence names before it only counts them


def seed_of(seed: int, environment: int, episode: int) -> int:
    """The seed of one episode: 32 bits that depend on nothing but these three."""
    sequence = np.random.SeedSequence([int(seed), int(environment), int(episode)])
    return int(sequence.generate_state(1)[0])


class Foreign(NamedTuple):
    """What messages say of environments of somebody else's."""

    name: str  # such as "environment `gymnasium/CartPole-v1`"
    install: str  # what brings all that they need to work and to be drawn
    timeout: float | None = None  # seconds that a step of one may take


class Copies:
    """The state of a host environment: S×B copies, `obs` `[S · B, ...]`, their past.

    `lost` are those that are not where their episode should be.
    """

    def __init__(
        self,
        foreign: Foreign,
        action: gymnasium.Space,
        pool: Pool,
        like: Environment,
        seeds: HostArray,
    ) -> None:
        """`action` is the environments' own space; `like` has those that parts see."""
        self.foreign = foreign
        self.pool = pool
        self._repeats = pool.repeats
        self.seeds = seeds
        self.grid = len(seeds), like.num_envs
        self.count = len(seeds) * like.num_envs
        self.space = like.observation
        self._taken = taken(action, self.grid)
        self._native = native(action)
        # The shape of what is `taken`: zeros.
        self._like = jax.tree.map(
            lambda leaf: np.zeros((self.count, *leaf.shape), leaf.dtype),
            zeros(like.action),
        )
        self.episode = np.zeros(self.count, np.int64)
        # Counted for all at once: an addition of NumPy's takes 5 µs after XLA's work.
        self._steps = 0
        self._began = np.zeros(self.count, np.int64)
        self.lost = np.zeros(self.count, np.bool_)
        self._some_lost = False
        # The actions of the longest episode; a row's own are the last `length`. None of
        # a pool that they would not bring back.
        self.past: collections.deque[ArrayTree] = collections.deque()
        self.obs: ArrayTree = None
        # How the episodes that ended last came to their end, for `render_final`.
        self._final_obs: ArrayTree = None
        self._final_pictures: dict[int, HostArray] = {}

    @property
    def length(self) -> HostArray:
        """How many steps each has made of its episode, `[S · B]`."""
        return self._steps - self._began

    def begin(self) -> ArrayTree:
        """Begins episode 0 of every copy; returns obs `[S, B, ...]`."""
        self.obs = self._begun(np.arange(self.count))
        return mapped(self._gridded, self.obs)

    def step(self, action: ArrayTree, cut: bool = False) -> TimeStep:
        """One step of every copy, with action `[S, B, ...]`; `cut` truncates all."""
        # Copied, for it is kept: the caller's buffer may be donated.
        played = self._taken(action)
        try:
            answers = self.pool.step(self._native(played))
        except Exception as error:  # noqa: BLE001 - foreign code may raise anything
            raise self._blamed("step", error, played) from _source(error)
        if self._repeats:
            self.past.append(played)
        self._steps += 1
        next_obs = answers.obs
        reward = np.array(answers.reward, np.float32)
        discount = np.array(answers.discount, np.float32)
        last = np.array(answers.last, np.bool_)
        if cut or self._some_lost:
            lost = self.lost
            reward[lost], discount[lost] = 0, 1
            next_obs = mapped(np.copy, next_obs)  # the pool may still need its own
            _put(next_obs, lost, _rows(self.obs, lost))
            last |= lost | cut
        self.obs = next_obs
        obs = seen = mapped(self._gridded, next_obs)
        over = last.nonzero()[0]
        if len(over):
            self.obs = self._followed(next_obs, over)
            obs = mapped(self._gridded, self.obs)
        return TimeStep(
            obs=obs,
            next_obs=seen,
            reward=reward.reshape(self.grid),
            discount=discount.reshape(self.grid),
            last=last.reshape(self.grid),
            info={},
        )

    def _followed(self, obs: ArrayTree, over: HostArray) -> ArrayTree:
        """The observations to act upon: of new episodes, in the copies in `over`."""
        if self.pool.draws:  # built with `rendering`: before the next episode begins
            self._final_pictures = {int(each): self.render(each) for each in over}
        self._final_obs = obs
        obs = mapped(np.copy, obs)
        self.episode[over] += 1
        self._began[over] = self._steps
        self.lost[over] = self._some_lost = False
        _put(obs, over, self._begun(over))
        for _ in range(len(self.past) - int(self.length.max())):
            self.past.popleft()
        return obs

    def save(self) -> dict[str, HostArray]:
        """What brings them back.

        Actions are `[S, B, L, ...]`, those of an episode at the end, zeros before it; L
        differs from one checkpoint to the next, and is 0 where they bring nothing back.
        """
        longest = len(self.past)
        past = jax.tree.map(
            lambda like, *each: np.stack([like, *each])[1:], self._like, *self.past
        )
        played = np.arange(longest)[:, None] >= longest - self.length

        def kept(leaf: HostArray) -> HostArray:
            mask = played.reshape(played.shape + (1,) * (leaf.ndim - 2))
            leaf = np.moveaxis(np.where(mask, leaf, 0).astype(leaf.dtype), 0, 1)
            return leaf.reshape(self.grid + leaf.shape[1:])

        return {
            "seeds": self.seeds.copy(),
            "episode": self._gridded(self.episode).copy(),
            "length": self._gridded(self.length).copy(),
            **_named("actions", jax.tree.map(kept, past)),
            **_named("obs", mapped(np.copy, mapped(self._gridded, self.obs))),
        }

    def restore(self, saved: Mapping[str, HostArray]) -> str:
        """Brings them back by replaying; returns a sentence about those it could not.

        A copy that is not where it was is `lost`: its next step ends the episode at the
        saved observation, truncated, with reward 0.
        """
        self.episode = np.array(saved["episode"], np.int64).ravel()
        self._began = self._steps - np.array(saved["length"], np.int64).ravel()
        now = self._begun(np.arange(self.count))
        was = jax.tree.map(
            lambda name, like: np.array(saved[name], like.dtype).reshape(like.shape),
            _names("obs", now),
            now,
        )
        actions = jax.tree.map(
            lambda name, like: np.array(saved[name], like.dtype).reshape(
                (self.count, -1, *like.shape[1:])
            ),
            _names("actions", self._like),
            self._like,
        )
        longest = jax.tree.leaves(actions)[0].shape[1]
        past = [jax.tree.map(lambda x, t=t: x[:, t], actions) for t in range(longest)]
        self.lost[:] = True
        if self._repeats:
            self.past.extend(past)
            self.lost = ~self._replayed(past, now) | ~_equal(now, was)
        self._some_lost = bool(self.lost.any())
        if self._some_lost:  # else a pool that steps all of them may refuse to
            self._begun(np.flatnonzero(self.lost))
        self.obs = was
        return self._sentence()

    def _replayed(self, past: list[ArrayTree], now: ArrayTree) -> HostArray:
        """Plays the actions again, changes `now`; which episodes lasted them out.

        All come to their end at once: an episode begins when so many steps are left as
        it is long.
        """
        lasted = np.ones(self.count, np.bool_)
        for time, action in enumerate(past):
            left = len(past) - time
            going = (self.length >= left) & lasted
            answers = self._call("step", self._native(action))
            _put(now, going, _rows(answers.obs, going))
            ended = np.array(answers.last, np.bool_)
            lasted &= ~(ended & going)
            # Also what has only passed the time: it is to be stepped once more.
            again = np.flatnonzero(ended | (self.length == left - 1))
            if len(again):
                _put(now, again, self._begun(again))
        return lasted

    def render(self, index: int) -> HostArray:
        """A picture `[H, W, 3]` uint8 of one copy: its own, or of its observation."""
        if not self.pool.draws:
            return picture(self.space, _rows(self.obs, index))
        drawn = self._call("render", index)
        if not isinstance(drawn, np.ndarray) or drawn.ndim != 3:
            raise RlcliError(f"{self.foreign.name} draws no picture of itself")
        return drawn.astype(np.uint8)

    def render_final(self, index: int) -> HostArray | None:
        """The picture of the final state of an episode that the last step ended."""
        if self.pool.draws:
            return self._final_pictures.get(index)
        return picture(self.space, _rows(self._final_obs, index))

    def close(self) -> None:
        """Closes every copy."""
        self.pool.close()

    def where(self, index: int) -> str:
        """Which copy it is, for messages."""
        row, column = divmod(index, self.grid[1])
        return (
            f"{self.foreign.name} (number {column} of seed {self.seeds[row]}, "
            f"episode {self.episode[index]})"
        )

    def _begun(self, which: HostArray) -> ArrayTree:
        """Begins the episodes that copies are in; their observations, as shown."""
        rows, columns = np.divmod(which, self.grid[1])
        seeds = [
            seed_of(self.seeds[row], column, int(self.episode[index]))
            for index, row, column in zip(which, rows, columns, strict=True)
        ]
        return self._call("begin", which, seeds)

    def _call(self, method: str, *args: Any) -> Any:
        """Calls the pool; what its environments raise gets their name and place."""
        try:
            return getattr(self.pool, method)(*args)
        except Exception as error:  # noqa: BLE001 - foreign code may raise anything
            raise self._blamed(method, error) from _source(error)

    def _blamed(
        self, method: str, error: BaseException, action: ArrayTree = ()
    ) -> RlcliError:
        """What is said of an error that the pool raised."""
        who, method = self.foreign.name, "reset" if method == "begin" else method
        index = None
        if isinstance(error, FailedError):
            index, who, method = error.index, self.where(error.index), error.method
        error = _source(error)
        if isinstance(error, AnswerError):
            where = f"`{method}`"
            if method == "step" and index is not None:
                where = f"step {self.length[index] + 1}"
            return RlcliError(
                f"{who} returned in {where} {error}",
                "the environment has to return observations of its declared space, and "
                "numbers as rewards; a wrapper around it can convert them",
            )
        if isinstance(error, OverdueError):
            return RlcliError(
                f"{who} took longer than {self.foreign.timeout:g} s for a `{method}`",
                "`timeout` under `environment:` says how long it may take",
            )
        hint = ""
        if isinstance(error, ImportError | DependencyNotInstalled):
            hint = f'pip install "{self.foreign.install}"'
        elif "OpenGL" in str(error):
            hint = "without a display MuJoCo draws where `MUJOCO_GL=egl` is set"
        said = f"{who} failed in `{method}`: {type(error).__name__}: {error}"
        if method == "step":
            said += self._suspicion(slice(None) if index is None else [index], action)
        return RlcliError(said, hint)

    def _suspicion(self, which: Any, action: ArrayTree) -> str:
        """What may have made a step fail: an action or observation with a NaN."""
        if not _is_finite(_rows(action, which)):
            return "; its action was not finite"
        if not _is_finite(_rows(self.obs, which)):
            return "; the observation that it had returned before was not finite"
        return ""

    def _gridded(self, leaf: HostArray) -> HostArray:
        return leaf.reshape(self.grid + leaf.shape[1:])

    def _sentence(self) -> str:
        lost = [self.where(int(index)) for index in np.flatnonzero(self.lost)]
        if not lost:
            return ""
        more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
        why = "replaying the actions did not" if self._repeats else "nothing could"
        return (
            f"{why} bring back {', '.join(lost[:NAMED])}{more}: {len(lost)} of "
            f"{self.count} episodes end here, and new ones begin"
        )


def _source(error: BaseException) -> BaseException:
    """The environment's own error, where a pool says which environment raised it."""
    cause = error.__cause__
    return cause if isinstance(error, FailedError) and cause else error


def _rows(tree: ArrayTree, which: Any) -> ArrayTree:
    return mapped(operator.itemgetter(which), tree)


def _put(tree: ArrayTree, which: HostArray, rows: ArrayTree) -> None:
    """Writes rows into arrays."""
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(rows), strict=True)
    for leaf, new in pairs:
        leaf[which] = new


def _is_finite(tree: ArrayTree) -> bool:
    return all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(tree))


def _equal(now: ArrayTree, was: ArrayTree) -> HostArray:
    """Which rows are the same, a NaN equal to a NaN: a bool `[N]`."""
    same = []
    for a, b in zip(jax.tree.leaves(now), jax.tree.leaves(was), strict=True):
        alike = (a == b) | ((a != a) & (b != b))  # a NaN is no number's equal
        same.append(alike.reshape((len(a), -1)).all(axis=1))
    return np.all(same, axis=0)


def _names(name: str, tree: ArrayTree) -> ArrayTree:
    """The keys that the leaves of a tree are saved under."""
    leaves, structure = jax.tree.flatten(tree)
    if len(leaves) == 1:
        return structure.unflatten([name])
    return structure.unflatten([f"{name}.{index}" for index in range(len(leaves))])


def _named(name: str, tree: ArrayTree) -> dict[str, HostArray]:
    names = jax.tree.leaves(_names(name, tree))
    return dict(zip(names, jax.tree.leaves(tree), strict=True))
