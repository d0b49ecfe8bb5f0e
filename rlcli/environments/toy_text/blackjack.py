"""Blackjack: come closer to 21 than the dealer, but not beyond."""

from __future__ import annotations

import functools
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.answers import answer
from rlcli.registry import register
from rlcli.types import Array, Environment, Key, TimeStep

DECK = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10])  # an ace is 1
BUST, NATURAL = 0, 6  # of the hands a dealer ends with; 1 … 5 are 17 … 21


class BlackjackState(NamedTuple):
    """What is on the table, as far as it matters."""

    total: Array  # int32: of the player's cards, aces as 1
    ace: Array  # bool: whether there is one among them
    natural: Array  # bool: whether they are an ace and a ten, and no more
    dealer: Array  # int32: the dealer's open card


@register("environment", "Blackjack-v1")
def blackjack(*, natural: bool = False, sab: bool = True) -> Environment:
    """Plays one hand of blackjack: 1 for winning, −1 for losing, 0 for a draw.

    Cards are drawn with replacement from ranks 1 (ace) … 9 and 10 (four times as
    often). An ace counts 11 where that does not exceed 21: it is usable. The dealer has
    an open card and a hidden one, and when the player sticks, draws up to 17 or more.
    Observation: a tuple of three int32: the player's sum, the dealer's open card, 1 if
    the player has a usable ace. Actions: 0 stick, 1 hit. The episode terminates beyond
    21, or when the player sticks. Example 5.1 of (Sutton and Barto, 2018,
    http://incompleteideas.net/book/the-book-2nd.html), as in Gymnasium.

    What the dealer comes to is drawn at once, by its exact distribution given the open
    card: the hidden one is never seen before.

    Args:
        natural: pays 1.5 for winning with an ace and a ten, unless `sab`.
        sab: the book's rules: an ace and a ten win unless the dealer has them, too.
    """

    def observed(state: BlackjackState) -> tuple[Array, Array, Array]:
        best, usable = _valued(state.total, state.ace)
        return best, state.dealer, usable.astype(jnp.int32)

    def reset(key: Key) -> tuple[BlackjackState, tuple[Array, Array, Array]]:
        first, second, dealer = _card(jax.random.uniform(key, (3,)))
        total, ace = first + second, jnp.minimum(first, second) == 1
        state = BlackjackState(total, ace, ace & (total == 11), dealer)
        return state, observed(state)

    def stuck(state: BlackjackState, noise: Array) -> Array:
        """The reward for sticking; `noise` says what the dealer comes to."""
        hand = jnp.sum(noise >= jnp.asarray(_dealer_odds())[state.dealer - 1])
        dealer = jnp.where(hand == BUST, 0, jnp.minimum(16 + hand, 21))
        best, _ = _valued(state.total, state.ace)
        reward = jnp.sign(jnp.where(best > 21, 0, best) - dealer)
        if sab:
            return jnp.where(state.natural & (hand != NATURAL), 1.0, reward)
        bonus = state.natural & (reward == 1)
        return jnp.where(bonus, 1.5, reward) if natural else reward

    def step(
        state: BlackjackState, action: Array, noise: Array
    ) -> tuple[BlackjackState, TimeStep]:
        hit = jnp.asarray(action == 1)
        # The same number is the player's card or the dealer's luck: never both.
        card = jnp.where(hit, _card(noise), 0)
        after = BlackjackState(
            total=state.total + card,
            ace=state.ace | (card == 1),
            natural=state.natural & ~hit,
            dealer=state.dealer,
        )
        bust = after.total > 21
        reward = jnp.where(hit, jnp.where(bust, -1.0, 0.0), stuck(state, noise))
        return after, answer(observed(after), reward, bust | ~hit)

    sizes = (32, 11, 2)
    spaces = (gymnasium.spaces.Discrete(size, dtype=np.int32) for size in sizes)
    return Environment(
        reset=reset,
        step=step,
        observation=gymnasium.spaces.Tuple(tuple(spaces)),
        action=gymnasium.spaces.Discrete(2),
        render=lambda state: _draw(*(int(each) for each in observed(state))),
        draw=jax.random.uniform,
    )


def _card(uniform: Array) -> Array:
    """A card of the deck, int32, by a number in [0, 1)."""
    rank = (uniform * len(DECK)).astype(jnp.int32) + 1
    return jnp.minimum(rank, 10)


def _valued(total: Array, ace: Array) -> tuple[Array, Array]:
    """A hand's sum, and whether an ace of it is usable."""
    usable = ace & (total <= 11)
    return total + jnp.where(usable, 10, 0), usable


@functools.cache
def _dealer_odds() -> np.ndarray:
    """How likely a dealer ends with a worse hand than 1 … 6, `[10, 6]` by open card."""
    ends = np.zeros((10, 7))
    for card in range(1, 11):
        for hidden in DECK.tolist():
            if {card, hidden} == {1, 10}:
                ends[card - 1, NATURAL] += 1 / len(DECK)
            else:
                hand = card + hidden, 1 in (card, hidden)
                ends[card - 1, :NATURAL] += np.array(_finished(*hand)) / len(DECK)
    return np.cumsum(ends, axis=1)[:, :-1].astype(np.float32)


@functools.cache
def _finished(total: int, ace: bool) -> tuple[float, ...]:
    """How likely a dealer with these cards ends with more than 21, 17, …, 21."""
    best = total + 10 if ace and total <= 11 else total
    if best > 16:
        return tuple(np.eye(6)[BUST if best > 21 else best - 16].tolist())
    each = [_finished(total + card, ace or card == 1) for card in DECK.tolist()]
    return tuple(np.mean(each, axis=0).tolist())


def _draw(best: int, dealer: int, usable: int) -> np.ndarray:
    """The table, `[360, 400, 3]` uint8: the dealer's cards, the player's sum."""
    canvas = drawing.Canvas(400, 360, "#4d8f5c")
    pale, gold = "#dcebdf", "#e8cf6a"
    canvas.text((30, 34), "dealer", 18, pale, anchor="lm")
    _draw_card(canvas, (120, 20), "A" if dealer == 1 else str(dealer))
    canvas.box((216, 20), 84, 120, drawing.PAPER, radius=10)
    canvas.box((222, 26), 72, 108, drawing.BLUE, radius=7)
    for row in range(5):
        for column in range(3):
            canvas.circle((240 + 18 * column, 44 + 18 * row), 4, "#7fa3d1")
    canvas.line((30, 170), (370, 170), 2, "#7db38a")
    canvas.text((30, 206), "player", 18, pale, anchor="lm")
    canvas.text((200, 250), str(best), 92, "#ffb4a8" if best > 21 else drawing.PAPER)
    if usable:
        canvas.box((136, 312), 128, 30, gold, radius=15)
        canvas.text((200, 327), "usable ace", 16)
    return canvas.pixels()


def _draw_card(canvas: drawing.Canvas, corner: drawing.Point, rank: str) -> None:
    left, top = corner
    canvas.box(corner, 84, 120, drawing.PAPER, radius=10)
    canvas.text((left + 42, top + 62), rank, 48, drawing.INK)
    canvas.text((left + 12, top + 12), rank, 16, drawing.INK, anchor="la")
    canvas.text((left + 72, top + 108), rank, 16, drawing.INK, anchor="rd")
