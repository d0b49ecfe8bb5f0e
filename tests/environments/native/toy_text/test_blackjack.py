"""Blackjack, compared with Gymnasium hand by hand."""

import functools
import itertools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.toy_text import blackjack as original
from tiers import quick_first

from rlcli import registry
from rlcli.environments.native.toy_text.blackjack import (
    BlackjackState,
    _dealer_cards,
    blackjack,
)

RANKS = {card: original.deck.count(card) / 13 for card in range(1, 11)}
RULES = [(False, True), (False, False), (True, False), (True, True)]
GRID = (np.arange(2600, dtype=np.float32) + 0.5) / 2600
REWARDS = (-1.0, 0.0, 1.0, 1.5)


class Script:
    """Replaces Gymnasium's generator: deals the given cards, then raises an error."""

    def __init__(self, cards):
        self.cards = list(cards)

    def choice(self, deck):
        del deck
        return self.cards.pop(0)


@functools.cache
def table(natural, sab):
    return original.BlackjackEnv(natural=natural, sab=sab)


def game(player, dealer, cards=(), *, natural=False, sab=True):
    """Gymnasium's game, always at the same table, with the given hands and cards."""
    env = table(natural, sab)
    env.player, env.dealer = list(player), list(dealer)
    env._np_random = Script(cards)
    return env


@functools.cache
def hands():
    """A hand for every state of a player: `{(total, ace, natural): cards}`."""
    found = {}
    waiting = [list(pair) for pair in itertools.product(RANKS, RANKS)]
    while waiting:
        hand = waiting.pop(0)
        key = (sum(hand), 1 in hand, original.is_natural(hand))
        if key not in found:
            found[key] = hand
            if not original.is_bust(hand):
                waiting += [[*hand, card] for card in RANKS]
    return found


def states(dealer):
    """One `BlackjackState` per hand, with the given card of the dealer."""
    total, ace, natural = (np.array(each) for each in zip(*hands(), strict=True))
    return BlackjackState(
        total.astype(np.int32), ace, natural, np.full(len(total), dealer, np.int32)
    )


@functools.cache
def dealers_ends():
    """The final hands of Gymnasium's dealer: `{card: {cards: probability}}`."""
    found = {}
    for card in RANKS:
        ends, of_kind = {}, {}
        waiting = [([hidden], RANKS[hidden]) for hidden in RANKS]
        while waiting:
            cards, probability = waiting.pop()
            env = game([10, 10], [card, cards[0]], cards[1:])
            try:
                env.step(0)
            except IndexError:  # needs another card
                waiting += [([*cards, c], probability * RANKS[c]) for c in RANKS]
                continue
            kind = (original.score(env.dealer), original.is_natural(env.dealer))
            hand = of_kind.setdefault(kind, tuple(env.dealer))
            ends[hand] = ends.get(hand, 0) + probability
        found[card] = ends
    return found


@pytest.mark.slow
def test_the_test_covers_all_hands():
    assert len(hands()) == len({(t, a) for t, a, _ in hands()}) + 1  # 21 with an ace: 2
    assert {sum(h) for h in hands().values()} == set(range(2, 32))
    for ends in dealers_ends().values():
        assert sum(ends.values()) == pytest.approx(1)
        assert 6 <= len(ends) <= 7


@functools.cache
def step_hands():
    """Steps all hands with one action and noise, jitted."""
    return jax.jit(jax.vmap(blackjack().step, (0, None, None)))


@pytest.mark.parametrize("card", RANKS)
def test_a_hit_matches_gymnasium_for_every_hand_and_card(card):
    standing = [h for h in hands() if not original.is_bust(hands()[h])]
    noise = np.float32((card - 0.5) / 13)
    for dealer in (1, 6, 10):
        after, timestep = jax.device_get(step_hands()(states(dealer), 1, noise))
        for index, key in enumerate(hands()):
            if key not in standing:
                continue
            env = game(hands()[key], [dealer, 5], [card])
            obs, reward, terminated, _, _ = env.step(1)
            assert tuple(int(each[index]) for each in timestep.obs) == obs
            assert float(timestep.reward[index]) == reward
            assert bool(timestep.last[index]) == terminated
            assert int(after.total[index]) == sum(env.player)
            assert not bool(after.natural[index])


@pytest.mark.parametrize(("natural", "sab"), quick_first(RULES))
def test_the_rewards_of_sticking_have_gymnasiums_probabilities(natural, sab):
    core = blackjack(natural=natural, sab=sab)
    step = jax.jit(jax.vmap(jax.vmap(core.step, (None, None, 0)), (0, None, None)))
    for dealer, ends in dealers_ends().items():
        timestep = jax.device_get(step(states(dealer), 0, GRID)[1])
        assert np.all(timestep.last) and not np.any(timestep.discount)
        found = [np.mean(timestep.reward == reward, axis=1) for reward in REWARDS]
        expected = np.zeros((len(REWARDS), len(hands())))
        for index, (hand, (end, likely)) in itertools.product(
            range(len(hands())), enumerate(ends.items())
        ):
            del hand
            player = list(hands().values())[index]
            env = game(player, end, natural=natural, sab=sab)
            obs, reward, _, _, _ = env.step(0)
            expected[REWARDS.index(reward), index] += likely
        np.testing.assert_allclose(found, expected, atol=2 / len(GRID))
        assert tuple(int(each[-1, 0]) for each in timestep.obs) == obs


def test_cards_have_the_probabilities_of_gymnasiums_deck():
    core = blackjack()
    empty = BlackjackState(np.int32(0), np.bool(False), np.bool(False), np.int32(5))
    draw = jax.jit(jax.vmap(core.step, (None, None, 0)))
    drawn = draw(empty, 1, GRID)[0].total
    share = np.bincount(drawn, minlength=11)[1:] / len(GRID)
    np.testing.assert_allclose(share, list(RANKS.values()), atol=1e-3)


@pytest.mark.slow
def test_deals_have_the_probabilities_of_gymnasium(as_likely):
    keys = jax.random.split(jax.random.key(5), 60_000)
    state, obs = jax.jit(jax.vmap(blackjack().reset))(keys)
    expected = np.zeros((22, 2, 11))
    for first, second, dealer in itertools.product(RANKS, RANKS, RANKS):
        hand = [first, second]
        likely = RANKS[first] * RANKS[second] * RANKS[dealer]
        best, usable = original.sum_hand(hand), original.usable_ace(hand)
        expected[best, usable, dealer] += likely
    counts = np.zeros_like(expected)
    np.add.at(counts, (np.asarray(obs[0]), np.asarray(obs[2]), np.asarray(obs[1])), 1)
    often = expected > 2e-4  # the others are too rare to count
    assert as_likely(counts[often], expected[often] / expected[often].sum())
    assert np.all(expected[counts > 0] > 0)
    natural = np.asarray(state.natural)
    np.testing.assert_array_equal(natural, np.asarray(obs[0]) == 21)


def test_noise_is_uniform(as_likely):
    keys = jax.random.split(jax.random.key(6), 26_000)
    luck = jax.vmap(blackjack().draw)(keys)
    assert as_likely(np.histogram(luck, 26, (0, 1))[0], [1 / 26] * 26)


def test_spaces_and_time_limit_match_gymnasium():
    env = gymnasium.make("Blackjack-v1")
    core = blackjack()
    sizes = [int(each.n) for each in core.observation.spaces]
    assert sizes == [int(each.n) for each in env.observation_space.spaces]
    assert core.action == env.action_space
    found = registry.find("environment", "Blackjack-v1")
    assert env.spec.max_episode_steps is None
    assert "time_limit" not in found.facts
    assert (env.unwrapped.natural, env.unwrapped.sab) == (False, True)


def test_the_table_is_drawn_with_the_observation():
    def frame(total, ace, dealer):
        state = BlackjackState(total, ace, False, dealer)
        state = BlackjackState(*(jnp.asarray(each) for each in state))
        return blackjack().render(state).astype(int)

    felt, gold = np.array([77, 143, 92]), np.array([232, 207, 106])
    plain = frame(15, False, 7)
    assert np.abs(plain[5, 5] - felt).sum() < 9
    chip = np.s_[191:221, 242:370]
    assert not np.any(np.abs(plain[chip] - gold).sum(-1) < 9)
    assert np.any(np.abs(frame(5, True, 7)[chip] - gold).sum(-1) < 9)
    other = np.nonzero(np.any(plain != frame(15, False, 1), axis=-1))
    assert other[0].max() < 170 and 30 <= other[1].min() <= other[1].max() < 120
    more = np.nonzero(np.any(plain != frame(16, False, 7), axis=-1))
    assert 220 < more[0].min() <= more[0].max() < 320


def games(core, number=300, steps=5):
    """Random hands, `[number, steps]`; steps after the end of a hand are invalid."""

    def play(key):
        def step(state, key):
            act, noise = jax.random.split(key)
            action = jax.random.bernoulli(act).astype(jnp.int32)
            state, timestep = core.step(state, action, core.draw(noise))
            return state, (state, action, timestep)

        state, _ = core.reset(key)
        return jax.lax.scan(step, state, jax.random.split(key, steps))[1]

    found = jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), number))
    return jax.tree.map(np.asarray, found)


@pytest.mark.slow
def test_the_cards_of_a_video_are_those_of_the_episode():
    states, actions, timesteps = games(blackjack(True))
    _, _, plain = games(blackjack())
    jax.tree.map(np.testing.assert_array_equal, timesteps, plain)
    player, hand, luck = states.details
    total, won, ended = states.state.total, timesteps.reward, timesteps.last
    np.testing.assert_array_equal(player.sum(-1), total)
    stuck = 0
    for game in range(len(total)):
        end = int(np.argmax(ended[game]))  # of the first hand
        if not ended[game, end] or actions[game, end] == 1:
            assert hand[game, end] == -1
            continue
        cards = player[game, end][player[game, end] > 0].tolist()
        open_card = int(states.state.dealer[game, end])
        dealers = _dealer_cards(open_card, int(hand[game, end]), float(luck[game, end]))
        assert dealers[0] == open_card
        score, dealers_score = (original.score(each) for each in (cards, dealers))
        expected = np.sign(score - dealers_score)
        if original.is_natural(cards) and not original.is_natural(dealers):
            expected = 1
        assert won[game, end] == expected
        stuck += 1
    assert stuck > 100


@pytest.mark.parametrize("number", quick_first([1_000, 4_000]))
def test_the_dealers_cards_have_the_right_probabilities(as_likely, number):
    hand = 5  # 21 without a natural, with an open 7
    lucks = np.linspace(0.1, 0.9, number, dtype=np.float32)
    found = [_dealer_cards(7, hand, luck) for luck in lucks]
    assert all(sum(cards) == 21 or sum(cards) == 11 for cards in found)
    hidden = np.bincount([cards[1] for cards in found], minlength=11)[1:]
    chances = np.array([chance(7 + card, 1 in (7, card), 21) for card in RANKS])
    weights = chances * np.array([RANKS[card] for card in RANKS])
    assert as_likely(hidden, weights / weights.sum())


@functools.cache
def chance(total, ace, end):
    """The probability that a dealer with one sum ends with another."""
    best = total + 10 if ace and total <= 11 else total
    if best > 16:
        return float(best == end)
    return sum(
        RANKS[card] * chance(total + card, ace or card == 1, end) for card in RANKS
    )


def test_a_video_shows_the_dealers_cards_when_the_player_sticks():
    core = blackjack(True)
    state, _ = jax.jit(core.reset)(jax.random.key(1))
    step = jax.jit(core.step)
    hit, _ = step(state, np.int32(1), np.float32(0.1))
    stuck, _ = step(state, np.int32(0), np.float32(0.1))
    before, more, after = (core.render(each) for each in (state, hit, stuck))
    assert np.any(before[:170] != after[:170])
    np.testing.assert_array_equal(before[185:], after[185:])
    assert np.any(before[185:] != more[185:])
    np.testing.assert_array_equal(before[:170], more[:170])
