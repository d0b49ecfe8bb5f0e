"""The shared gradient step against optax and arithmetic by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from random_trees import normal_like

from rlcli.errors import RlcliError
from rlcli.types import Clock
from rlcli.updaters.learner import NOT_FAILED, Losses, Term, learner, target_update

PARAMS = {"q": {"w": np.array([1, -2], "f4")}, "policy": {"w": np.array([3], "f4")}}
CLOCK = Clock.zero()._replace(compute_metrics=np.bool_(True))
ONES = np.ones((1, 1), np.float32)


def leaves(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def random_params(seed):
    return normal_like(PARAMS, seed)


@pytest.mark.parametrize("rate", [0.005, 0.5, 1.0])
def test_a_polyak_target_is_a_moving_average(rate):
    update = jax.jit(target_update({"polyak": rate}))
    incremental_update = jax.jit(lambda *each: optax.incremental_update(*each, rate))
    target = ours = random_params(0)
    for updates in range(1, 6):
        params = random_params(updates)
        ours = update(params, ours, np.int32(updates))
        target = jax.tree.map(
            lambda new, old: rate * new + (1 - rate) * old, params, target
        )
        np.testing.assert_allclose(leaves(ours), leaves(target), rtol=1e-5, atol=1e-6)
        incremental = incremental_update(params, ours)
        np.testing.assert_array_equal(
            leaves(update(params, ours, np.int32(0))), leaves(incremental)
        )


def test_a_periodic_target_is_copied_every_n_updates_only():
    update = jax.jit(target_update({"every": 3}))
    periodic_update = jax.jit(lambda *each: optax.periodic_update(*each, 3))
    target = random_params(0)
    for updates in range(1, 10):
        params = random_params(updates)
        new = update(params, target, np.int32(updates))
        copied = updates % 3 == 0
        np.testing.assert_array_equal(leaves(new), leaves(params if copied else target))
        periodic = periodic_update(params, target, np.int32(updates))
        np.testing.assert_array_equal(leaves(new), leaves(periodic))
        target = new


def test_without_a_target_there_is_none():
    assert target_update(None)(PARAMS, (), np.int32(1)) == ()
    init, _ = learner(lambda key: PARAMS, optax.sgd(1.0))
    assert init(jax.random.key(0)).target == ()


@pytest.mark.parametrize("target", [{}, {"every": 3, "polyak": 0.1}])
def test_a_target_with_both_options_or_none_is_refused(target):
    with pytest.raises(RlcliError) as caught:
        target_update(target)
    assert caught.value.hint == "set either `every` or `polyak`"


def test_target_and_parameters_share_no_buffer():
    copy = jax.tree.map(jnp.copy, PARAMS)
    init, _ = learner(lambda key: copy, optax.sgd(1.0), {"every": 2})
    state = init(jax.random.key(0))
    np.testing.assert_array_equal(leaves(state.target), leaves(state.params))
    donated = jax.jit(lambda state: state, donate_argnums=0)(
        state
    )  # fails on shared buffers
    assert donated.failed == NOT_FAILED


def critic_loss(value, priority=0.0, **metrics):
    """A loss with one weighted term."""
    terms = [Term(value, is_weighted=True)]
    return Losses(terms, jnp.array([priority]), {}, metrics)


def sums(weighted=(), **values):
    """A loss whose terms are linear in one parameter, so gradients are constant."""

    def loss(params):
        terms = [
            Term(jnp.asarray(value) * params[name]["w"][0], name in weighted)
            for name, value in values.items()
        ]
        shape = jnp.shape(terms[0].value)
        return Losses(terms, jnp.full(shape[1:], 7.0), {})

    return loss


def gradient_of(weight, loss, params):
    """The change that SGD subtracts at a learning rate of 1."""
    init, step = learner(lambda key: params, optax.sgd(1.0))
    state = init(jax.random.key(0))
    state, _, metrics = jax.jit(step, static_argnums=1)(state, loss, weight, CLOCK)
    return {
        name: float(group["w"][0] - np.asarray(state.params[name]["w"])[0])
        for name, group in params.items()
    }, metrics


def test_weights_scale_only_weighted_terms_and_padding_masks_all_terms():
    value = np.array([[1.0, 10.0], [100.0, 1000.0]])
    weight = np.array([[0.5, 2.0], [0.25, 0.0]])  # the last row is padding
    params = {name: {"w": np.ones(1, "f4")} for name in ("value", "critic")}
    # The declaration decides, not the name: "critic" is the term without weights.
    loss = sums(weighted=("value",), value=value, critic=value)
    gradient, metrics = gradient_of(weight, loss, params)
    assert gradient["value"] == pytest.approx((0.5 + 20 + 25) / 3, rel=1e-6)
    assert gradient["critic"] == pytest.approx((1 + 10 + 100) / 3, rel=1e-6)
    assert metrics["loss"] == pytest.approx((45.5 + 111) / 3, rel=1e-6)


def test_row_metrics_are_means_over_rows_and_other_metrics_stay_the_same():
    weight = np.array([[0.5, 2.0], [0.25, 0.0]])
    by_critic = np.array([[[1, 2], [3, 9]], [[5, 6], [7, 9]]], "f4")

    def loss(params):
        terms = [Term(params["q"]["w"][0] * jnp.ones((2, 2)), is_weighted=True)]
        row_metrics = {"row": by_critic[0], "by_critic": by_critic}
        return Losses(terms, jnp.zeros(2), row_metrics, {"scalar": jnp.float32(5)})

    _, metrics = gradient_of(weight, loss, {"q": {"w": np.ones(1, "f4")}})
    assert metrics["row"] == 2  # of three rows: the last has weight 0
    assert metrics["by_critic"] == 4
    assert metrics["scalar"] == 5


def test_without_rows_of_positive_weight_the_gradient_is_zero():
    params = {"critic": {"w": np.ones(1, "f4")}}
    gradient, metrics = gradient_of(
        np.zeros((2, 2)), sums(("critic",), critic=np.ones((2, 2))), params
    )
    assert gradient["critic"] == metrics["loss"] == 0.0


def test_a_step_equals_optax_on_the_sum_of_the_terms():
    optimizer = optax.adam(0.1)
    init, step = learner(lambda key: PARAMS, optimizer, {"every": 2})

    def terms(params):
        return [
            Term(jnp.sum(params["q"]["w"] ** 2) * ONES, is_weighted=True),
            Term(jnp.sum(jnp.exp(params["policy"]["w"])) * ONES, is_weighted=False),
        ]

    def loss(params):
        return Losses(terms(params), jnp.full(1, 7.0), {}, {"x": jnp.float32(1.5)})

    @jax.jit
    def step_optax(params, moments):
        gradient = jax.grad(
            lambda each: sum(jnp.sum(term.value) for term in terms(each))
        )(params)
        change, moments = optimizer.update(gradient, moments, params)
        return gradient, optax.apply_updates(params, change), moments

    state, step = init(jax.random.key(0)), jax.jit(step, static_argnums=1)
    params, moments = PARAMS, optimizer.init(PARAMS)
    for updates in range(4):
        clock = CLOCK._replace(updates=np.int32(updates))
        state, priority, metrics = step(state, loss, ONES, clock)
        gradient, params, moments = step_optax(params, moments)
        assert metrics["gradient_norm"] == pytest.approx(
            np.linalg.norm(leaves(gradient)), rel=1e-5
        )
        np.testing.assert_allclose(leaves(state.params), leaves(params), rtol=1e-5)
        assert metrics["x"] == 1.5
        assert priority == 7.0
        copied = updates in (1, 3)  # after the second update and the fourth
        same = np.array_equal(leaves(state.target), leaves(state.params))
        assert same == copied


def test_metrics_are_zero_unless_requested_and_nothing_else_differs():
    init, step = learner(lambda key: PARAMS, optax.sgd(0.1))

    def loss(params):
        term = jnp.sum(params["q"]["w"] ** 2) * ONES
        return critic_loss(term, 7.0, x=jnp.array(5.0))

    def run(compute_metrics):
        clock = CLOCK._replace(compute_metrics=np.bool_(compute_metrics))
        return jax.jit(lambda: step(init(jax.random.key(0)), loss, ONES, clock))()

    (state, priority, metrics), (other_state, other_priority, zeros) = (
        run(True),
        run(False),
    )
    assert set(metrics) == set(zeros) == {"loss", "x", "gradient_norm"}
    assert all(float(metric) != 0 for metric in metrics.values())
    assert all(float(zero) == 0 for zero in zeros.values())
    np.testing.assert_array_equal(leaves(state.params), leaves(other_state.params))
    assert priority == other_priority == 7.0


@pytest.mark.parametrize("target", [None, {"every": 1}, {"polyak": 0.5}])
def test_a_non_finite_loss_stops_learning_at_its_update(target):
    init, step = learner(lambda key: PARAMS, optax.adam(0.1), target)

    @jax.jit
    def update(state, factor, updates):
        def loss(params):
            return critic_loss(factor * jnp.sum(params["q"]["w"] ** 2) * ONES)

        return step(state, loss, ONES, CLOCK._replace(updates=updates))[0]

    learned = init(jax.random.key(0))
    for updates in range(3):
        before, learned = learned, update(learned, np.float32(1), np.int32(updates))
        assert not np.array_equal(leaves(before.params), leaves(learned.params))
        assert learned.failed == NOT_FAILED
    good = leaves(learned.params)
    for bad in np.array([np.nan, np.inf, -np.inf], "f4"):
        state = learned
        for updates, factor in [(3, bad), (4, 1), (5, bad), (6, 1)]:
            state = update(state, np.float32(factor), np.int32(updates))
            np.testing.assert_array_equal(leaves(state.params), good)
            assert state.failed == 3  # the first failure
        if target is not None:
            assert np.all(np.isfinite(leaves(state.target)))


TURNS = [("q", "shared"), ("policy",)]


def chase_loss(params):
    """A loss that pulls `policy` towards `q`."""
    error = params["policy"]["w"][0] - params["q"]["w"][0]
    terms = [Term(error**2 * ONES, is_weighted=False)]
    return Losses(terms, jnp.zeros(1), {}, {"far": jnp.abs(error)})


def pull_loss(params):
    """A loss of `q` that depends on `policy` as well."""
    term = jnp.sum(params["q"]["w"] ** 2) + jnp.sum(params["policy"]["w"] ** 3)
    return critic_loss(term * ONES, 7.0, x=jnp.float32(1.5))


def test_turns_are_consecutive_optax_steps_of_their_own_groups():
    optimizer = optax.adam(0.1)
    init, step = learner(
        lambda key: PARAMS,
        optimizer,
        {"polyak": 0.5},
        turns=TURNS,
        target_groups=("q",),
    )

    @jax.jit
    def step_optax(params, moments, gradient):
        change, moments = optimizer.update(gradient, moments)
        return optax.apply_updates(params, change), moments

    state, step = init(jax.random.key(0)), jax.jit(step, static_argnums=1)
    q, policy = PARAMS["q"]["w"], PARAMS["policy"]["w"]
    q_moments, policy_moments = optimizer.init(q), optimizer.init(policy)
    target = q
    for updates in range(4):
        clock = CLOCK._replace(updates=np.int32(updates))
        state, priority, metrics = step(state, (pull_loss, chase_loss), ONES, clock)
        assert priority == 7.0
        assert metrics["x"] == 1.5
        assert metrics["gradient_norm"] == pytest.approx(2 * float(np.linalg.norm(q)))
        q, q_moments = jax.device_get(step_optax(q, q_moments, 2 * q))
        gradient = 2 * (policy - q[0])
        policy, policy_moments = jax.device_get(
            step_optax(policy, policy_moments, gradient)
        )
        target = (target + q) / 2
        far = float(abs(policy[0] - q[0]))
        assert metrics["far"] == pytest.approx(far, rel=1e-5)
        np.testing.assert_allclose(state.params["q"]["w"], q, rtol=1e-5)
        np.testing.assert_allclose(state.params["policy"]["w"], policy, rtol=1e-5)
        np.testing.assert_allclose(leaves(state.target), target, rtol=1e-5)


def test_a_turn_that_is_not_due_leaves_its_optimizer_unchanged():
    init, step = learner(lambda key: PARAMS, optax.adam(0.1), turns=TURNS, delay=2)
    step = jax.jit(step, static_argnums=1)
    state = init(jax.random.key(0))
    for updates in range(4):
        clock = CLOCK._replace(updates=np.int32(updates))
        before = state
        state, _, _ = step(state, (pull_loss, chase_loss), ONES, clock)
        same = np.array_equal(
            leaves((state.params["policy"], state.optimizer[1])),
            leaves((before.params["policy"], before.optimizer[1])),
        )
        assert same == (updates % 2 == 0)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failing_turn_stops_all_turns(failing):
    def broken(params):
        return critic_loss(jnp.nan * ONES)

    losses = (pull_loss, chase_loss)
    init, step = learner(lambda key: PARAMS, optax.sgd(0.1), turns=TURNS)
    step = jax.jit(step, static_argnums=1)
    state, _, _ = step(init(jax.random.key(0)), losses, ONES, CLOCK)
    bad = (*losses[:failing], broken, *losses[failing + 1 :])
    clock = CLOCK._replace(updates=np.int32(1))
    after, _, _ = step(state, bad, ONES, clock)
    assert after.failed == 1
    for name, stays in (("q", failing == 0), ("policy", True)):
        same = leaves(after.params[name]) == leaves(state.params[name])
        assert same.all() == stays
    clock = CLOCK._replace(updates=np.int32(2))
    later, _, _ = step(after, losses, ONES, clock)
    assert later.failed == 1
    np.testing.assert_array_equal(leaves(later.params), leaves(after.params))


def test_a_loss_term_without_one_number_per_row_is_refused():
    init, step = learner(lambda key: PARAMS, optax.sgd(0.1))

    def loss(params):
        term = jnp.sum(params["q"]["w"]) * jnp.ones(3)  # would broadcast to 2 × 3
        return Losses([Term(term, is_weighted=True)], jnp.zeros(3), {})

    weight = np.ones((2, 3), np.float32)
    with pytest.raises(AssertionError, match="shape"):
        jax.eval_shape(
            lambda state: step(state, loss, weight, CLOCK), init(jax.random.key(0))
        )
