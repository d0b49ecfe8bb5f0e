"""Bandits, compared with the numbers of their papers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rlcli.environments.native.bandits import (
    BanditState,
    bernoulli_bandit,
    gaussian_bandit,
    k_armed_bandit,
)

EPISODES = 2000
# The results do not depend on compiler options; compiling takes a third of the time.
play_jitted = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0}
)


class Play:
    """A batch of episodes of one bandit, played from NumPy."""

    def __init__(self, core, steps=100, episodes=EPISODES):
        keys = jax.random.split(jax.random.key(0), episodes)
        self.state, self.obs = play_jitted(jax.vmap(core.reset))(keys)
        drawn = jax.random.split(jax.random.key(1), (steps, episodes))
        noise = play_jitted(jax.vmap(jax.vmap(core.draw)))(drawn)
        self.noise = jax.device_get(noise)
        self.step, self.done = play_jitted(jax.vmap(core.step)), 0

    def pull(self, action):
        noise = jax.tree.map(lambda leaf: leaf[self.done], self.noise)
        self.state, timestep = self.step(self.state, np.asarray(action), noise)
        self.done += 1
        return jax.tree.map(np.asarray, timestep)


@pytest.fixture(scope="module")
def rounds():
    """A function: total rewards and regrets of playing with `choose(wins, losses)`."""

    def play(arms, choose):
        game = Play(bernoulli_bandit(arms=arms))
        wins, losses = np.zeros((2, EPISODES, arms))
        total, regret = np.zeros((2, EPISODES))
        for t in range(100):
            action = choose(wins, losses)
            timestep = game.pull(action)
            mine = np.arange(EPISODES), action
            wins[mine] += timestep.reward
            losses[mine] += 1 - timestep.reward
            total += timestep.reward
            regret += timestep.info["regret"]
            assert np.all(timestep.last == (t == 99))
            np.testing.assert_array_equal(timestep.discount, 1.0 - timestep.last)
            np.testing.assert_allclose(timestep.obs[:, 0], (t + 1) / 100, rtol=1e-6)
        return total, regret

    return play


# The paper has no numbers for two arms: these are from NumPy, and a recipe cites them.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arms", "thompson", "chance"), [(5, 74.7, 49.9), (2, 64.0, 50.0)]
)
def test_thompson_sampling_and_random_play_match_duan_et_al(
    rounds, arms, thompson, chance
):
    rng = np.random.default_rng(0)
    total, regret = rounds(
        arms, lambda wins, losses: np.argmax(rng.beta(wins + 1, losses + 1), axis=1)
    )
    assert abs(total.mean() - thompson) < 1.0  # they played 1000 episodes: ± 0.5
    # The expected maximum of n uniform numbers is n / (n + 1).
    best = 100 * arms / (arms + 1)
    assert abs(total.mean() + regret.mean() - best) < 1.5
    total, _ = rounds(arms, lambda wins, _: rng.integers(arms, size=EPISODES))
    assert abs(total.mean() - chance) < 1.0


def test_an_arm_pays_with_its_probability():
    game = Play(bernoulli_bandit(probabilities=(0.1, 0.9)), steps=1)
    means = np.asarray(game.state.means)
    np.testing.assert_allclose(means.sum(axis=1), 1.0, rtol=1e-6)
    # Both orders are equally likely.
    assert stats.binomtest(int(np.sum(means[:, 0] < 0.5)), EPISODES).pvalue > 0.001
    timestep = game.pull(np.zeros(EPISODES, int))
    for mean in (0.1, 0.9):
        paid = timestep.reward[np.isclose(means[:, 0], mean)]
        assert set(np.unique(paid)) == {0.0, 1.0}
        assert stats.binomtest(int(paid.sum()), len(paid), mean).pvalue > 0.001
    np.testing.assert_allclose(
        timestep.info["regret"], np.where(means[:, 0] < 0.5, 0.8, 0.0), atol=1e-6
    )


def test_probabilities_are_drawn_between_the_bounds(is_uniform):
    game = Play(bernoulli_bandit(arms=3, low=0.2, high=0.6), steps=1)
    assert is_uniform(game.state.means, 0.2, 0.6)


def test_one_gaussian_arm_pays_nothing_and_the_other_is_random(is_normal):
    game = Play(gaussian_bandit(mean=-0.5, spread=2.0, noise=0.3), steps=2)
    mu = np.asarray(game.state.means[:, 1])
    assert is_normal(mu, -0.5, 2.0)
    still = game.pull(np.zeros(EPISODES, int))
    np.testing.assert_array_equal(still.reward, 0.0)
    np.testing.assert_allclose(still.info["regret"], np.maximum(mu, 0), rtol=1e-6)
    paid = game.pull(np.ones(EPISODES, int))
    assert is_normal(paid.reward - mu, 0.0, 0.3)
    np.testing.assert_allclose(paid.info["regret"], np.maximum(-mu, 0), rtol=1e-6)


def test_the_best_of_ten_arms_matches_order_statistics(is_normal):
    game = Play(k_armed_bandit(), steps=1)
    means = np.asarray(game.state.means)
    best = means.max(axis=1)
    assert is_normal(means, 0.0, 1.0)
    # The largest of ten standard normal numbers: 1.5388 on average.
    assert stats.ttest_1samp(best, 1.5388).pvalue > 0.001
    assert stats.kstest(best, lambda x: stats.norm.cdf(x) ** 10).pvalue > 0.001
    paid = game.pull(means.argmax(axis=1))
    assert is_normal(paid.reward - best, 0.0, 1.0)
    np.testing.assert_array_equal(paid.info["regret"], 0.0)
    np.testing.assert_array_equal(game.state.means, means)


@pytest.mark.slow
def test_exploration_beats_greed_as_in_figure_2_2_of_the_book():
    """Finally, ε = 0.1 pulls the best arm nearly 80 % of the time, greed a third."""
    episodes, steps = 1000, 500
    rng, curious = np.random.default_rng(0), np.arange(episodes) % 2 == 0
    game = Play(k_armed_bandit(), steps, episodes)
    sums, counts = np.zeros((2, episodes, 10))
    best = np.asarray(game.state.means).argmax(axis=1)
    for _ in range(steps):
        value = sums / np.maximum(counts, 1) + 1e-6 * rng.random(sums.shape)
        wander = curious & (rng.random(episodes) < 0.1)
        drawn = rng.integers(10, size=episodes)
        action = np.where(wander, drawn, value.argmax(axis=1))
        mine = np.arange(episodes), action
        sums[mine] += game.pull(action).reward
        counts[mine] += 1
    right = action == best
    assert 0.72 < right[curious].mean() < 0.85
    assert 0.25 < right[~curious].mean() < 0.45


def test_means_follow_a_random_walk(is_normal):
    game = Play(k_armed_bandit(mean=2.0, spread=0.0, drift=0.5), steps=5)
    np.testing.assert_array_equal(game.state.means, 2.0)
    first = game.pull(np.zeros(EPISODES, int))
    assert is_normal(first.reward, 2.0, 1.0)
    np.testing.assert_array_equal(first.info["regret"], 0.0)
    for _ in range(4):
        game.pull(np.zeros(EPISODES, int))
    assert is_normal(np.asarray(game.state.means), 2.0, 0.5 * np.sqrt(5))


def test_the_bar_of_the_best_arm_is_highest_and_green():
    core = k_armed_bandit(arms=3)
    state = BanditState(jnp.array([-1.0, 2.0, 0.5]), jnp.array([0, 30, 500]))
    frame = core.render(state).astype(int)
    chart = frame[30:260]
    green, blue = (
        np.abs(chart - colour).sum(-1) < 30
        for colour in ([77, 143, 92], [59, 111, 182])
    )
    thirds = [slice(20 + 200 * i, 220 + 200 * i) for i in range(3)]
    assert [np.any(green[:, each]) for each in thirds] == [False, True, False]
    heights = [np.any((green | blue)[:, each], axis=1).sum() for each in thirds]
    assert heights[1] > heights[0] > heights[2] > 0
    below = np.nonzero(blue[:, thirds[0]])[0].min()  # negative means point down
    assert below > np.nonzero(blue[:, thirds[2]])[0].max() - 6
    counts = np.abs(frame[290:394] - [185, 160, 106]).sum(-1) < 30
    pulls = [np.any(counts[:, each], axis=1).sum() for each in thirds]
    assert pulls[0] < pulls[1] < pulls[2]
