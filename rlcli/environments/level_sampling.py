"""Level sampling: which of finitely many levels an episode plays.

A level is the key with which an environment begins an episode, so it is a map, a goal
or whatever else the environment draws there. Prioritized level replay (PLR, Jiang et
al., 2021, https://arxiv.org/abs/2010.03934) plays levels from which there is most to
learn: here by regret, the best return of a level so far minus a running mean of its
returns, as the estimate MaxMC of Jiang et al. (2021, https://arxiv.org/abs/2110.02439)
with a mean in place of a value. So it needs no critic, and works with every updater.

With L levels, of which a share s has been played, an episode plays one of the others
with probability 1 − s, and else level i with probability

    P(i) = (1 − ρ) rank(regret i)^(−1/β) / Σ + ρ (c − cᵢ) / Σ

where c counts episodes, cᵢ is its value when level i was played last, ρ is `staleness`
and β `temperature`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float32, Int32

from rlcli.types import Array, ArrayTree, Traced

_LEVELS = 7_919  # the seed of the keys of all levels: the same in every run
_HORIZON = 4  # episodes of the running mean of a level's returns


class LevelState(NamedTuple):
    """What B environments play, and what is known of L levels.

    Uniform samplers need to know nothing: L is 0.
    """

    level: Int32[Traced, "B"]  # of the current episode
    total: Float32[Traced, "B"]  # its return so far
    best: Float32[Traced, "L"]  # the best return
    mean: Float32[Traced, "L"]
    visits: Int32[Traced, "L"]  # episodes that have ended
    played: Int32[Traced, "L"]  # the number of the last episode that has begun
    episodes: Int32[Traced, ""]  # that have begun


class LevelSampler(NamedTuple):
    """Chooses levels; the functions are called for all environments of a vector."""

    # keys `[B]` -> state
    begin: Callable[[ArrayTree], LevelState]
    # (state, reward `[B]`, last `[B]`, has_ended `[B]`, keys `[B]`) -> state: adds a
    # step, and chooses a level where an episode has ended. `last`: its return counts.
    step: Callable[..., LevelState]
    # state -> the keys with which the current episodes begin, `[B]`
    keys: Callable[[LevelState], ArrayTree]
    first: int


def level_sampler(
    count: int, first: int, *, by_regret: bool, temperature: float, staleness: float
) -> LevelSampler:
    """Samples levels `first`, …, `first + count − 1`, by regret or uniformly."""
    size = count if by_regret else 0  # of the arrays with what is known of levels

    def begin(keys: ArrayTree) -> LevelState:
        zeros = jnp.zeros(size, jnp.int32)
        state = LevelState(
            level=jnp.zeros(keys.shape, jnp.int32),
            total=jnp.zeros(keys.shape, jnp.float32),
            best=jnp.full(size, -jnp.inf),
            mean=jnp.zeros(size, jnp.float32),
            visits=zeros,
            played=zeros - 1,
            episodes=jnp.int32(0),
        )
        return choose(state, jnp.ones(keys.shape, bool), keys)

    def step(
        state: LevelState,
        reward: Float32[Array, "B"],
        last: Bool[Array, "B"],
        has_ended: Bool[Array, "B"],
        keys: ArrayTree,
    ) -> LevelState:
        state = state._replace(total=state.total + reward)
        return choose(_add_returns(state, last), has_ended, keys)

    def choose(
        state: LevelState, is_new: Bool[Array, "B"], keys: ArrayTree
    ) -> LevelState:
        shares = jax.vmap(jax.random.uniform)(keys)
        if by_regret:
            probabilities = level_probabilities(state, temperature, staleness)
            cumulative = jnp.cumsum(probabilities)
            drawn = jnp.searchsorted(cumulative, shares * cumulative[-1], side="right")
        else:
            drawn = (shares * count).astype(jnp.int32)
        level = jnp.where(is_new, jnp.minimum(drawn, count - 1), state.level)
        place = jnp.where(is_new, level, count)  # else not written
        return state._replace(
            level=level.astype(jnp.int32),
            total=jnp.where(is_new, 0.0, state.total),
            played=state.played.at[place].set(state.episodes, mode="drop"),
            episodes=state.episodes + jnp.sum(is_new, dtype=jnp.int32),
        )

    def keys(state: LevelState) -> ArrayTree:
        base = jax.random.key(_LEVELS)
        return jax.vmap(jax.random.fold_in, (None, 0))(base, first + state.level)

    return LevelSampler(begin, step, keys, first)


def level_probabilities(
    state: LevelState, temperature: float, staleness: float
) -> Float32[Array, "L"]:
    """The probability of each level for the next episode."""
    is_new = state.played < 0
    share = jnp.mean(~is_new)  # of the levels that have been played
    regret = jnp.where(state.visits > 0, state.best - state.mean, 0.0)
    order = jnp.argsort(jnp.where(is_new, -jnp.inf, regret), descending=True)
    rank = jnp.zeros(len(order)).at[order].set(jnp.arange(1.0, len(order) + 1))
    mass = jnp.where(is_new, 0.0, rank ** np.float32(-1 / temperature))
    age = jnp.where(is_new, 0, state.episodes - state.played).astype(jnp.float32)
    replayed = (1 - staleness) * _normalize(mass) + staleness * _normalize(age)
    unseen = _normalize(is_new.astype(jnp.float32))
    return share * replayed + (1 - share) * unseen


def _normalize(mass: Float32[Array, "L"]) -> Float32[Array, "L"]:
    """Probabilities in proportion to masses; zeros if all of these are."""
    total = jnp.sum(mass)
    return jnp.where(total > 0, mass / jnp.where(total > 0, total, 1.0), 0.0)


def _add_returns(state: LevelState, last: Bool[Array, "B"]) -> LevelState:
    """Adds the returns of the episodes that end; several may be of one level."""
    count = len(state.best)
    place = jnp.where(last, state.level, count)  # else not written
    added = jnp.zeros(count, jnp.int32).at[place].add(1, mode="drop")
    total = jnp.zeros(count).at[place].add(state.total, mode="drop")
    visits = state.visits + added
    mean = total / jnp.maximum(added, 1)
    rate = jnp.minimum(1.0, added / jnp.clip(visits, 1, _HORIZON))
    return state._replace(
        best=state.best.at[place].max(state.total, mode="drop"),
        mean=state.mean + rate * (mean - state.mean),
        visits=visits,
    )
