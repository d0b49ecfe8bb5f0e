"""Blackjack: get closer to 21 than the dealer without exceeding it."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rlcli.environments import drawing
from rlcli.environments.native.core import native_core
from rlcli.registry import register
from rlcli.types import Array, ArrayTree, Core, Key, RenderState, Step, wrap

DECK = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10])  # an ace is 1
BUST, NATURAL = 0, 6  # the dealer's final hands; 1 … 5 are 17 … 21
MAX_CARDS = 22  # the largest hand of a player: 21 aces and one more card


class BlackjackState(NamedTuple):
    """The cards on the table, reduced to the values that matter."""

    total: Array  # int32: the sum of the player's cards, with aces as 1
    ace: Array  # bool: whether the player has an ace
    natural: Array  # bool: whether the player's hand is exactly an ace and a ten
    dealer: Array  # int32: the dealer's open card


class Cards(NamedTuple):
    """The cards on the table, for rendering."""

    player: Array  # int32 [MAX_CARDS]: ranks in the order dealt, then zeros
    hand: Array  # int32: the dealer's final hand; −1 before
    luck: Array  # float32: the number in [0, 1) that determined it


@register("environment", "Blackjack-v1")
def blackjack(
    rendering: bool = False, *, natural: bool = False, sab: bool = True
) -> Core:
    """Plays one hand of blackjack: reward 1 for winning, −1 for losing, 0 for a draw.

    Cards are drawn with replacement from ranks 1 (ace) … 9 and 10 (four times as
    likely). An ace counts 11 if the sum does not exceed 21: it is then usable. The
    dealer has an open card and a hidden card, and draws up to 17 or more when the
    player sticks.
    Observation: a tuple of three int32: the player's sum, the dealer's open card, 1 if
    the player has a usable ace. Actions: 0 stick, 1 hit. The episode terminates when
    the sum exceeds 21, or when the player sticks. Example 5.1 of (Sutton and Barto,
    2018, http://incompleteideas.net/book/the-book-2nd.html), as in Gymnasium.

    The dealer's final hand is sampled in one draw from its exact distribution given the
    open card, since the hidden card is never observed. Videos show cards that lead to
    this hand.

    Args:
        natural: whether winning with an ace and a ten pays 1.5; ignored if `sab`.
        sab: the book's rules: an ace and a ten win unless the dealer has them, too.
    """

    def observe(state: BlackjackState) -> tuple[Array, Array, Array]:
        best, usable = _hand_value(state.total, state.ace)
        return best, state.dealer, usable.astype(jnp.int32)

    def begin(key: Key) -> BlackjackState:
        first, second, dealer = _deal(key)
        total, ace = first + second, jnp.minimum(first, second) == 1
        return BlackjackState(total, ace, ace & (total == 11), dealer)

    def stick_reward(state: BlackjackState, noise: Array) -> Array:
        """The reward for sticking; `noise` determines the dealer's hand."""
        hand = _dealer_hand(state.dealer, noise)
        dealer = jnp.where(hand == BUST, 0, jnp.minimum(16 + hand, 21))
        best, _ = _hand_value(state.total, state.ace)
        reward = jnp.sign(jnp.where(best > 21, 0, best) - dealer)
        if sab:
            return jnp.where(state.natural & (hand != NATURAL), 1.0, reward)
        bonus = state.natural & (reward == 1)
        return jnp.where(bonus, 1.5, reward) if natural else reward

    def step(state: BlackjackState, action: Array, noise: Array) -> tuple:
        hit = jnp.asarray(action == 1)
        # One random number suffices: it is the player's card or the dealer's hand.
        card = jnp.where(hit, _card_from_uniform(noise), 0)
        after = BlackjackState(
            total=state.total + card,
            ace=state.ace | (card == 1),
            natural=state.natural & ~hit,
            dealer=state.dealer,
        )
        bust = after.total > 21
        reward = jnp.where(hit, jnp.where(bust, -1.0, 0.0), stick_reward(state, noise))
        return after, reward, bust | ~hit

    def render(state: BlackjackState) -> np.ndarray:
        best, dealer, usable = (int(value) for value in observe(state))
        return _draw(best, dealer, usable)

    sizes = (32, 11, 2)
    spaces = (gymnasium.spaces.Discrete(size, dtype=np.int32) for size in sizes)
    seen = gymnasium.spaces.Tuple(tuple(spaces))
    core = native_core(
        begin, step, observe, seen, 2, render=render, draw=jax.random.uniform
    )
    return _with_cards(core, observe) if rendering else core


def _with_cards(core: Core, observe: Callable) -> Core:
    """Adds the cards to the state of the environment, for rendering."""

    def reset(key: Key) -> tuple[RenderState, ArrayTree]:
        state, obs = core.reset(key)
        first, second, _ = _deal(key)
        player = jnp.zeros(MAX_CARDS, jnp.int32).at[0].set(first).at[1].set(second)
        cards = Cards(player, jnp.int32(-1), jnp.float32(0))
        return RenderState(state, cards), obs

    def step(state: RenderState, action: Array, noise: Array) -> Step:
        after, timestep = core.step(state.state, action, noise)
        player, hit = state.details.player, jnp.asarray(action == 1)
        dealt = jnp.sum(player > 0)
        more = player.at[dealt].set(_card_from_uniform(noise), mode="drop")
        hand = jnp.where(hit, -1, _dealer_hand(after.dealer, noise))
        cards = Cards(jnp.where(hit, more, player), hand, noise)
        return RenderState(after, cards), timestep

    def render(state: RenderState) -> np.ndarray:
        player, hand, luck = jax.tree.map(np.asarray, state.details)
        best, dealer, usable = (int(value) for value in observe(state.state))
        cards = player[player > 0].tolist()
        return _draw(best, dealer, usable, cards, int(hand), float(luck))

    return wrap(core, reset=reset, step=step, render=render)


def _deal(key: Key) -> Array:
    """Deals the player's first two cards and the dealer's open card, int32 `[3]`."""
    return _card_from_uniform(jax.random.uniform(key, (3,)))


def _dealer_hand(dealer: Array, noise: Array) -> Array:
    """Maps a number in [0, 1) to the dealer's final hand, given the open card."""
    return jnp.sum(noise >= jnp.asarray(_dealer_odds())[dealer - 1])


def _card_from_uniform(uniform: Array) -> Array:
    """Maps a number in [0, 1) to a card of the deck, int32."""
    rank = (uniform * len(DECK)).astype(jnp.int32) + 1
    return jnp.minimum(rank, 10)


def _hand_value(total: Array, ace: Array) -> tuple[Array, Array]:
    """The sum of a hand, and whether the hand has a usable ace."""
    usable = ace & (total <= 11)
    return total + jnp.where(usable, 10, 0), usable


@functools.cache
def _dealer_odds() -> np.ndarray:
    """The probability of a dealer's hand below 1 … 6, `[10, 6]` by open card."""
    ends = np.zeros((10, 7))
    for card in range(1, 11):
        for hidden in DECK.tolist():
            if {card, hidden} == {1, 10}:
                ends[card - 1, NATURAL] += 1 / len(DECK)
            else:
                hand = card + hidden, 1 in (card, hidden)
                shares = np.array(_dealer_distribution(*hand))
                ends[card - 1, :NATURAL] += shares / len(DECK)
    return np.cumsum(ends, axis=1)[:, :-1].astype(np.float32)


@functools.cache
def _dealer_distribution(total: int, ace: bool) -> tuple[float, ...]:
    """The probabilities of a final hand above 21 and of 17, …, 21, given the cards."""
    best = total + 10 if ace and total <= 11 else total
    if best > 16:
        return tuple(np.eye(6)[BUST if best > 21 else best - 16].tolist())
    distributions = [
        _dealer_distribution(total + card, ace or card == 1) for card in DECK.tolist()
    ]
    return tuple(np.mean(distributions, axis=0).tolist())


def _dealer_cards(dealer: int, hand: int, luck: float) -> list[int]:
    """Samples the dealer's cards, given the open card and the final hand.

    They depend only on `luck`, so that videos are reproducible.
    """
    rng = np.random.default_rng(int(np.float32(luck).view(np.uint32)))
    while True:
        cards = [dealer, int(rng.choice(DECK))]
        if sorted(cards) == [1, 10]:
            final_hand = NATURAL
        else:
            while _best(cards) < 17:
                cards.append(int(rng.choice(DECK)))
            final_hand = BUST if _best(cards) > 21 else _best(cards) - 16
        if final_hand == hand:
            return cards


def _best(cards: Sequence[int]) -> int:
    """The sum of a hand, with an ace as 11 if the sum does not exceed 21."""
    return sum(cards) + 10 * (1 in cards and sum(cards) <= 11)


def _draw(
    best: int,
    dealer: int,
    usable: int,
    player: Sequence[int] = (),
    hand: int = -1,
    luck: float = 0.0,
) -> np.ndarray:
    """Draws the cards of the dealer and the player, `[360, 400, 3]` uint8.

    Without `player`, draws the player's sum instead of the cards.
    """
    canvas = drawing.Canvas(400, 360, "#4d8f5c")
    pale, gold, red = "#dcebdf", "#e8cf6a", "#ffb4a8"
    canvas.line((30, 180), (370, 180), 2, "#7db38a")
    canvas.text((30, 24), "dealer", 18, pale, anchor="lm")
    canvas.text((30, 206), "player", 18, pale, anchor="lm")
    dealers = [dealer] if hand < 0 else _dealer_cards(dealer, hand, luck)
    _draw_hand(canvas, (30, 44), dealers, hidden=hand < 0)
    if hand >= 0:
        total = _best(dealers)
        fill = red if total > 21 else drawing.PAPER
        canvas.text((120, 24), str(total), 22, fill, anchor="lm")
    fill = red if best > 21 else drawing.PAPER
    if player:
        _draw_hand(canvas, (30, 226), player)
        canvas.text((120, 206), str(best), 22, fill, anchor="lm")
    else:
        canvas.text((200, 270), str(best), 92, fill)
    if usable:
        canvas.box((242, 191), 128, 30, gold, radius=15)
        canvas.text((306, 206), "usable ace", 16)
    return canvas.pixels()


def _draw_hand(
    canvas: drawing.Canvas,
    corner: drawing.Point,
    cards: Sequence[int],
    hidden: bool = False,
) -> None:
    """Draws cards from left to right, overlapping if there are many."""
    left, top = corner
    count = len(cards) + hidden
    spacing = min(96.0, (340 - 84) / max(1, count - 1))
    for index, rank in enumerate(cards):
        _draw_card(
            canvas, (left + index * spacing, top), "A" if rank == 1 else str(rank)
        )
    if hidden:
        _draw_back(canvas, (left + len(cards) * spacing, top))


def _draw_card(canvas: drawing.Canvas, corner: drawing.Point, rank: str) -> None:
    left, top = corner
    canvas.box((left - 1, top - 1), 86, 122, drawing.GREY, radius=11)
    canvas.box(corner, 84, 120, drawing.PAPER, radius=10)
    canvas.text((left + 42, top + 62), rank, 48, drawing.INK)
    canvas.text((left + 8, top + 8), rank, 16, drawing.INK, anchor="la")
    canvas.text((left + 76, top + 112), rank, 16, drawing.INK, anchor="rd")


def _draw_back(canvas: drawing.Canvas, corner: drawing.Point) -> None:
    left, top = corner
    canvas.box(corner, 84, 120, drawing.PAPER, radius=10)
    canvas.box((left + 6, top + 6), 72, 108, drawing.BLUE, radius=7)
    for row in range(5):
        for column in range(3):
            centre = (left + 24 + 18 * column, top + 24 + 18 * row)
            canvas.circle(centre, 4, "#7fa3d1")
