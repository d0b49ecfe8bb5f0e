"""Action noise: its moments, its autocorrelation, and clipping to the Box."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats
from tiers import quick_first

from rlcli.errors import RlcliError
from rlcli.policies import ActionOffer
from rlcli.policies.continuous import (
    deterministic,
    gaussian_noise,
    ornstein_uhlenbeck,
    state_dependent,
)
from rlcli.types import Network

BATCH = 2_000
BOX = spaces.Box(np.array([-2.0, 0.0], "f4"), np.array([2.0, 10.0], "f4"))
WIDE = spaces.Box(-np.inf, np.inf, (2,))
POLICIES = {
    "gaussian_noise": gaussian_noise,
    "ornstein_uhlenbeck": ornstein_uhlenbeck,
    "state_dependent": state_dependent,
}


def constant_network(outputs=None):
    """A network that outputs a constant, or its input if `outputs` is None."""

    def apply(params, key, inputs, carry, first):
        assert inputs.shape[0] == first.shape[0] == 1  # one step in time
        shown = inputs if outputs is None else outputs
        return jnp.broadcast_to(shown, (*inputs.shape[:2], np.shape(shown)[-1])), carry

    return Network(lambda key: {}, apply, lambda batch: ())


def play_policy(policy, steps, *, batch=BATCH, first=None, obs=None):
    """Actions and log-probs `[steps, B]`; noise is drawn in advance as in the loop."""
    first = np.zeros((steps, batch), bool) if first is None else first
    obs = np.ones((steps, batch, 2), "f4") if obs is None else obs

    @jax.jit
    def play(obs, first):
        drawn = policy.draw(jax.random.key(0, impl="rbg"), steps * batch)
        noise = drawn.reshape((steps, batch, -1))

        def step(state, each):
            obs, first, noise = each
            decision, state = policy.explore((), obs, state, first, noise)
            return state, (decision.action, decision.extras["log_prob"])

        return jax.lax.scan(step, policy.initial(batch), (obs, first, noise))[1]

    return [np.asarray(each) for each in play(obs, first)]


def correlation(x, y):
    """Of two noises `[B, entries]` with mean zero."""
    return np.mean(x * y) / np.sqrt(np.mean(x**2) * np.mean(y**2))


def test_gaussian_noise_has_its_deviation_and_no_memory(is_normal):
    mean = np.array([0.5, 4.0], "f4")
    policy = gaussian_noise(ActionOffer(constant_network(mean)), BOX, scale=0.1)
    action, _ = play_policy(policy, 8)
    noise = action - mean
    assert is_normal(noise, 0, 0.1)
    for one, other in [(noise[:-1], noise[1:]), (noise[..., 0], noise[..., 1])]:
        assert stats.pearsonr(one.ravel(), other.ravel()).pvalue > 0.001


def test_the_log_prob_of_gaussian_noise_includes_clipping():
    mean, scale = np.array([1.8, 4.0], "f4"), 0.2
    policy = gaussian_noise(ActionOffer(constant_network(mean)), BOX, scale=scale)
    (action,), (log_prob,) = play_policy(policy, 1, batch=20_000)
    normal = stats.norm(mean, scale)
    clipped = int(np.sum(action[:, 0] == 2.0))
    share = normal.sf(BOX.high)[0]
    assert stats.binomtest(clipped, len(action), share).pvalue > 0.001
    above = np.where(action == BOX.high, normal.logsf(BOX.high), normal.logpdf(action))
    density = np.where(action == BOX.low, normal.logcdf(BOX.low), above)
    np.testing.assert_allclose(log_prob, density.sum(-1), rtol=1e-3, atol=1e-3)
    again = jax.jit(policy.log_prob)(np.broadcast_to(mean, action.shape), action)
    np.testing.assert_allclose(again, log_prob, rtol=1e-5, atol=1e-5)
    # The density inside and the masses at both bounds integrate to 1.
    x = np.linspace(-2, 2, 4_001).astype("f4")
    alone = gaussian_noise(
        ActionOffer(constant_network(mean[:1])), spaces.Box(-2, 2, (1,))
    )
    mean = np.full((4_001, 1), 0.3, "f4")
    mass = np.exp(jax.jit(alone.log_prob)(mean, x[:, None]))
    inside = np.trapezoid(mass[1:-1], x[1:-1])
    assert inside + mass[0] + mass[-1] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("scale", quick_first([0.0, 0.2]))
def test_an_entry_with_equal_bounds_adds_nothing_to_the_log_prob(name, scale):
    low, high = np.array([-2, 3], "f4"), np.array([2, 3], "f4")
    both, alone = spaces.Box(low, high), spaces.Box(low[:1], high[:1])
    mean = np.array([0.5, 7.0], "f4")
    policies = [
        POLICIES[name](
            ActionOffer(constant_network(mean[: space.shape[0]])), space, scale=scale
        )
        for space in (both, alone)
    ]
    found = policies[0].log_prob(mean[None], np.array([[0.6, 3.0]], "f4"))
    expected = policies[1].log_prob(mean[None, :1], np.array([[0.6]], "f4"))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("theta", "scale", "dt"), quick_first([(2.0, 0.5, 0.1), (0.15, 0.2, 1.0)])
)
def test_the_ornstein_uhlenbeck_process_has_its_moments(theta, scale, dt, is_normal):
    mean, steps = np.array([0.5, -0.5], "f4"), 60
    options = {"theta": theta, "scale": scale, "dt": dt}
    policy = ornstein_uhlenbeck(ActionOffer(constant_network(mean)), WIDE, **options)
    action, log_prob = play_policy(policy, steps)
    noise = action - mean
    decay = np.exp(-theta * dt)
    stationary = scale / np.sqrt(2 * theta)
    # It starts at 0 and reaches its stationary deviation.
    first = stationary * np.sqrt(1 - decay**2)
    assert is_normal(noise[0], 0, first)
    assert is_normal(noise[-1], 0, stationary)
    for k in (1, 3, 8):
        actual = correlation(noise[-1 - k], noise[-1])
        assert actual == pytest.approx(decay**k, abs=0.06)
    expected_log_prob = stats.norm(mean, stationary).logpdf(action).sum(-1)
    np.testing.assert_allclose(log_prob, expected_log_prob, rtol=1e-3, atol=1e-3)


def test_a_small_step_of_the_process_is_that_of_its_equation():
    @jax.jit  # options may be known only when the program runs
    def step(theta, scale, dt):
        options = {"theta": theta, "scale": scale, "dt": dt}
        policy = ornstein_uhlenbeck(
            ActionOffer(constant_network(np.zeros(2))), WIDE, **options
        )
        noise = policy.draw(jax.random.key(0, impl="rbg"), 5)
        state, obs = ((), jnp.full((5, 2), 1.5)), jnp.ones((5, 2))
        decision, _ = policy.explore((), obs, state, jnp.zeros(5, bool), noise)
        return noise, decision.action

    theta, scale, dt = 0.7, 0.3, 1e-3
    noise, action = map(np.asarray, step(theta, scale, dt))
    euler = 1.5 - theta * 1.5 * dt + scale * np.sqrt(dt) * noise
    np.testing.assert_allclose(action, euler, atol=1e-5)


def test_the_process_restarts_with_each_episode():
    first = np.zeros((30, BATCH), bool)
    first[20, : BATCH // 2] = True
    policy = ornstein_uhlenbeck(ActionOffer(constant_network(np.zeros(2))), WIDE)
    noise, _ = play_policy(policy, 30, first=first)
    new, old = noise[:, : BATCH // 2], noise[:, BATCH // 2 :]
    assert abs(correlation(new[19], new[20])) < 0.1
    assert correlation(old[19], old[20]) == pytest.approx(np.exp(-0.15), abs=0.05)
    assert stats.ks_2samp(new[20].ravel(), noise[0].ravel()).pvalue > 0.001


def test_the_same_state_has_the_same_noise_until_the_matrix_is_resampled(is_normal):
    policy = state_dependent(
        ActionOffer(constant_network(np.zeros(2))), WIDE, scale=0.3, every=4
    )
    first = np.zeros((12, BATCH), bool)
    first[6, 0] = True
    noise, log_prob = play_policy(policy, 12, first=first)
    kept = np.all(noise[1:] == noise[:-1], axis=(1, 2))
    other = np.all(noise[1:, 1:] == noise[:-1, 1:], axis=(1, 2))
    np.testing.assert_array_equal(np.flatnonzero(~other) + 1, [4, 8])
    np.testing.assert_array_equal(np.flatnonzero(~kept) + 1, [4, 6, 8, 10])
    assert is_normal(noise[::4], 0, 0.3)
    expected_log_prob = stats.norm(0, 0.3).logpdf(noise).sum(-1)
    np.testing.assert_allclose(log_prob, expected_log_prob, rtol=1e-3, atol=1e-3)


def test_similar_states_have_similar_noise():
    features = np.array([[0.0, 0.0], [0.1, 0.0], [3.0, -1.0], [-30.0, 10.0]], "f4")
    obs = np.broadcast_to(features[:, None], (4, BATCH, 2))
    policy = state_dependent(
        ActionOffer(constant_network(np.zeros(2))), WIDE, scale=0.2
    )
    noise, _ = play_policy(policy, 4, obs=obs)
    z = np.concatenate([np.ones((4, 1)), features], -1)
    z = z / np.linalg.norm(z, axis=-1, keepdims=True)
    actual = np.einsum("ibk,jbk->ij", noise, noise) / noise[0].size / 0.2**2
    np.testing.assert_allclose(actual, z @ z.T, atol=0.07)


def test_noise_may_depend_on_features_that_the_updater_offers():
    halves = constant_network(np.full(3, 0.5, "f4"))
    policy = state_dependent(ActionOffer(constant_network(np.zeros(2)), halves), WIDE)
    obs = np.random.default_rng(0).normal(size=(2, BATCH, 2)).astype("f4")
    (first, second), _ = play_policy(policy, 2, obs=obs)
    np.testing.assert_array_equal(first, second)  # as the features, not the states


@pytest.mark.parametrize("name", POLICIES)
def test_actions_are_clipped_to_the_box_and_noise_is_not(name):
    policy = POLICIES[name](
        ActionOffer(constant_network(np.array([1.9, 0.0], "f4"))), BOX, scale=2.0
    )
    action, log_prob = play_policy(policy, 5)
    assert np.all((action >= BOX.low) & (action <= BOX.high))
    assert np.mean(action == BOX.high) > 0.1
    assert np.mean(action == BOX.low) > 0.1
    assert np.all(np.isfinite(log_prob))


@pytest.mark.parametrize("name", POLICIES)
def test_evaluation_has_no_noise_and_keeps_the_process_state(name):
    mean = np.array([0.5, 12.0], "f4")
    policy = POLICIES[name](ActionOffer(constant_network(mean)), BOX, scale=1.0)
    decide = jax.jit(policy.exploit)  # which is given noise, and uses none
    state, obs, first = policy.initial(4), np.ones((4, 2), "f4"), np.ones(4, bool)
    decision, after = decide((), obs, state, first, None)
    np.testing.assert_array_equal(decision.action, np.tile([0.5, 10.0], (4, 1)))
    assert not np.any(decision.extras["log_prob"])
    assert jax.tree.all(jax.tree.map(np.array_equal, state, after))


@pytest.mark.parametrize("name", POLICIES)
def test_deterministic_matches_each_noise_policy(name):
    action, noise = ActionOffer(constant_network()), name.removesuffix("_noise")
    short = deterministic(action, BOX, noise=noise, scale=0.3)
    long = POLICIES[name](action, BOX, scale=0.3)
    process = [jax.tree.structure(each.initial(7)) for each in (short, long)]
    assert process[0] == process[1]  # each has another
    other = POLICIES[name](action, BOX, scale=0.2)

    @jax.jit
    def log_probs(*point):
        return [policy.log_prob(*point) for policy in (short, long, other)]

    ours, theirs, different = log_probs(
        np.array([0.5, 1.0], "f4"), np.array([1.0, 1.0], "f4")
    )
    assert ours == theirs
    assert ours != different


def test_without_a_scale_there_is_no_noise():
    policy = gaussian_noise(ActionOffer(constant_network()), WIDE, scale=0.0)
    obs = np.random.default_rng(0).normal(size=(2, 5, 2)).astype("f4")
    action, log_prob = play_policy(policy, 2, batch=5, obs=obs)
    np.testing.assert_array_equal(action, obs)
    assert np.all(np.isfinite(log_prob))


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(0, 3, (), np.int32)])
def test_spaces_other_than_a_box_of_floats_are_refused(space):
    with pytest.raises(RlcliError, match="noise cannot be added to actions of"):
        gaussian_noise(ActionOffer(constant_network()), space)


def test_networks_may_return_actions_flat_or_in_their_shape():
    box = gymnasium.spaces.Box(-1, 1, (2, 3))
    flat = gaussian_noise(ActionOffer(constant_network(np.full(6, 0.5, "f4"))), box)
    action, log_prob = play_policy(flat, 2, batch=3)
    assert (action.shape, log_prob.shape) == ((2, 3, 2, 3), (2, 3))
    outputs = np.full((2, 3, 2, 3), 0.5, "f4")
    again = jax.jit(flat.log_prob)(outputs, action)
    np.testing.assert_allclose(again, log_prob, rtol=1e-5)
