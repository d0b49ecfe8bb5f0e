"""Proximal policy optimization (PPO) against rlax and arithmetic by hand."""

import gymnasium
import jax
import numpy as np
import optax
import pytest
import rlax
from tiers import quick_first

from rlcli import loop, recipe
from rlcli.assembly import build
from rlcli.errors import RlcliError
from rlcli.networks.functions import separate_network
from rlcli.networks.torsos import mlp
from rlcli.policies.sampled import sampled
from rlcli.types import Clock, Transition
from rlcli.updaters import Parts, Spaces
from rlcli.updaters.policy_gradient.ppo import ppo

CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))
KEY = jax.random.key(0)
OBSERVATION = gymnasium.spaces.Box(-1, 1, (3,))
CHOICE = gymnasium.spaces.Discrete(3, start=1)
BOX = gymnasium.spaces.Box(-1, 1, (2,))
SHAPE = (8, 4)
PLAIN = {"epochs": 1, "minibatches": 1, "regularizers": []}


def updater(action=CHOICE, optimizer=None, **options):
    def networks(name, head):
        return separate_network(name, mlp(layers=[8]), head(), OBSERVATION)

    def policies(distribution, space):
        return sampled(distribution)

    optimizer = optimizer or optax.sgd(0.1)
    spaces = Spaces(OBSERVATION, action)
    parts = Parts(spaces, networks, policies, optimizer)
    return ppo(parts, **{**PLAIN, **options})


def batch(action=CHOICE, seed=0):
    """Rows `[T, B]` as tracers return them: reward is the return, discount 0."""
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.normal(size=(2, *SHAPE, 3)).astype("f4")
    choice = 1 + rng.integers(0, 3, SHAPE)
    point = rng.normal(size=(*SHAPE, 2)).astype("f4")
    return Transition(
        obs=obs,
        action=choice if action is CHOICE else point,
        reward=rng.normal(size=SHAPE).astype("f4"),
        discount=rng.choice([0.0, 0.9], SHAPE).astype("f4"),
        next_obs=next_obs,
        first=np.zeros(SHAPE, bool),
        last=np.zeros(SHAPE, bool),
        extras={"log_prob": rng.normal(-1, 0.5, SHAPE).astype("f4")},
    )


def update_once(ours, rows, weight=None):
    state = ours.init(KEY)
    weight = np.ones(SHAPE, "f4") if weight is None else weight
    return state, *jax.jit(ours.update)(state, rows, weight, CLOCK, KEY)


def with_near_log_probs(ours, rows):
    """The rows, with log-probabilities close to those of the current policy."""
    noise = np.random.default_rng(1).normal(0, 0.3, SHAPE).astype("f4")
    log_prob = jax.jit(ours.estimate)(ours.init(KEY), rows, KEY).log_prob
    return rows._replace(extras={"log_prob": np.asarray(log_prob) + noise})


@pytest.mark.parametrize(
    ("action", "clip", "normalize", "value_weight", "entropy_weight"),
    [
        pytest.param(CHOICE, 0.1, True, 0.0, 0.0, marks=pytest.mark.slow),
        pytest.param(CHOICE, 0.3, False, 2.0, 0.5, marks=pytest.mark.slow),
        pytest.param(BOX, 0.1, False, 0.0, 0.0, marks=pytest.mark.slow),
        (BOX, 0.3, True, 0.5, 0.1),
    ],
)
def test_the_loss_equals_rlax_plus_value_loss_and_entropy(
    action, clip, normalize, value_weight, entropy_weight
):
    ours = updater(
        action,
        clip_ratio=clip,
        normalize_advantage=normalize,
        value_weight=value_weight,
        regularizers=[{"name": "entropy", "weight": entropy_weight}],
    )
    rows = with_near_log_probs(ours, batch(action))
    found = jax.device_get(jax.jit(ours.estimate)(ours.init(KEY), rows, KEY))
    target = np.asarray(rows.reward + rows.discount * found.v_t)
    error = target - np.asarray(found.v_tm1)
    ratio = np.exp(found.log_prob - rows.extras["log_prob"])
    scaled = (error - error.mean()) / (error.std() + 1e-8) if normalize else error
    surrogate = jax.jit(rlax.clipped_surrogate_pg_loss, static_argnums=2)
    expected = float(surrogate(np.ravel(ratio), np.ravel(scaled), clip))
    _, _, report = update_once(ours, rows)
    metrics = {name: float(each) for name, each in report.metrics.items()}
    expected += value_weight * 0.5 * np.mean(error**2)
    expected -= entropy_weight * metrics["entropy"]
    assert metrics["loss"] == pytest.approx(expected, rel=1e-4)
    clipped = np.mean(np.abs(ratio - 1) > clip)
    assert 0 < clipped < 1
    assert metrics["clip_fraction"] == pytest.approx(clipped)
    assert metrics["kl"] == pytest.approx(np.mean(ratio - 1 - np.log(ratio)), rel=1e-3)
    assert metrics["value_loss"] == pytest.approx(0.5 * np.mean(error**2), rel=1e-4)
    assert metrics["explained_variance"] == pytest.approx(
        1 - np.var(error) / np.var(target), abs=1e-3
    )
    np.testing.assert_allclose(report.priority, np.abs(error).mean(0), rtol=1e-4)
    # The initial policy is almost uniform, or a normal distribution of scale 1.
    uniform = np.log(3) if action is CHOICE else np.log(2 * np.pi * np.e)
    assert metrics["entropy"] == pytest.approx(uniform, rel=0.1)


@pytest.mark.slow
def test_before_the_first_step_the_ratio_is_one():
    ours = updater(optimizer=sum_gradients(), epochs=3, minibatches=4, value_weight=0.0)
    state = ours.init(KEY)
    rows = batch()
    log_prob = jax.jit(ours.estimate)(state, rows, KEY).log_prob
    rows = rows._replace(extras={"log_prob": log_prob})
    _, _, report = update_once(ours, rows)
    assert report.metrics["clip_fraction"] == 0.0
    assert report.metrics["kl"] == pytest.approx(0.0, abs=1e-6)
    assert report.metrics["loss"] == pytest.approx(0.0, abs=1e-6)  # Â has mean 0


@pytest.mark.slow
def test_the_first_update_of_a_run_uses_the_policys_own_log_probabilities():
    data = {
        "environment": {"name": "probe-reward-depends-on-action", "num_envs": 4},
        "network": {"name": "mlp", "layers": [8]},
        "updater": {"name": "ppo", "epochs": 1, "minibatches": 1},
        "train": {"steps": 64, "unroll": 16},
    }
    engine = loop.make_loop(build(recipe.load_recipe(data)))
    _, log = engine.advance(engine.begin(), 1)
    assert log.metrics["clip_fraction"][0, 0] == 0.0
    assert log.metrics["kl"][0, 0] == pytest.approx(0.0, abs=1e-6)


def test_rows_without_weight_change_nothing():
    rng = np.random.default_rng(3)
    rows, weight = batch(), np.ones(SHAPE, "f4")
    weight[:2] = 0.0
    noise = {name: np.array(getattr(rows, name)) for name in ("obs", "reward")}
    noise["obs"][:2] = rng.normal(size=(2, 4, 3))
    noise["reward"][:2] = 100.0
    ours = updater()
    _, first, _ = update_once(ours, rows, weight)
    _, second, _ = update_once(ours, rows._replace(**noise), weight)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_a_minibatch_without_rows_of_positive_weight_does_not_fail():
    weight = np.zeros(SHAPE, "f4")
    weight[-1] = 1.0
    _, state, report = update_once(updater(minibatches=8, epochs=2), batch(), weight)
    assert state.failed == -1
    assert np.isfinite(report.metrics["loss"])


def sum_gradients():
    """An optimizer that sums gradients and never changes parameters."""
    zeros = optax.tree.zeros_like
    return optax.GradientTransformation(
        zeros, lambda new, old, params: (zeros(new), optax.tree.add(new, old))
    )


@pytest.mark.parametrize(
    "sequence",
    quick_first([None, 1, 4, 8]),
)
def test_each_epoch_sees_every_row_once(sequence):
    # So the sum of minibatch gradients does not depend on the shuffling.
    rows, options = (
        batch(),
        {"normalize_advantage": False, "optimizer": sum_gradients()},
    )
    _, whole, _ = update_once(updater(**options), rows)
    ours = updater(**options, epochs=3, minibatches=2, sequence=sequence)
    _, dealt, _ = update_once(ours, rows)
    for one, many in zip(
        *(jax.tree.leaves(each.optimizer) for each in (whole, dealt)), strict=True
    ):
        np.testing.assert_allclose(6 * np.asarray(one), many, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequence": 3}, "cannot split an unroll of 8 steps into sequences of 3"),
        ({"minibatches": 5}, "cannot split 32 sequences into 5 equal minibatches"),
        ({"minibatches": 5, "sequence": 8}, "cannot split 4 sequences into 5"),
    ],
)
def test_uneven_sequences_and_minibatches_are_refused(options, message):
    ours = updater(**options)
    with pytest.raises(RlcliError, match=message) as caught:
        jax.eval_shape(ours.update, ours.init(KEY), batch(), np.ones(SHAPE), CLOCK, KEY)
    assert "`train.unroll`" in caught.value.hint


def test_estimates_equal_the_parameters():
    ours, rows = updater(), batch()
    state, estimate = ours.init(KEY), jax.jit(ours.estimate)
    found = estimate(state, rows, KEY)
    for obs, value in [(rows.obs, found.v_tm1), (rows.next_obs, found.v_t)]:
        again = estimate(state, rows._replace(obs=obs), KEY).v_tm1
        np.testing.assert_array_equal(value, again)

    @jax.jit
    def decide(state, obs):
        acting, noise = ours.acting(state), ours.policy.draw(KEY, 4)
        first, memory = np.zeros(4, bool), ours.policy.initial(4)
        return ours.policy.explore(acting, obs, memory, first, noise)[0]

    decision = decide(state, rows.obs[0])
    same = rows._replace(action=np.broadcast_to(decision.action, SHAPE))
    np.testing.assert_allclose(
        np.asarray(estimate(state, same, KEY).log_prob)[0],
        decision.extras["log_prob"],
        rtol=1e-5,
    )


def test_action_spaces_without_a_distribution_are_refused():
    with pytest.raises(RlcliError, match=r"`ppo` needs .* action space Text") as caught:
        updater(gymnasium.spaces.Text(3))
    assert "Box of floats" in caught.value.hint
