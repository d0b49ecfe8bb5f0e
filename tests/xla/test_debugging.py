"""Debugging: errors name the place of the first number that is not finite."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlcli.networks.activations import name_layers
from rlcli.types import Clock
from rlcli.updaters.learner import Losses, Term, learner
from rlcli.xla import debugging

CLOCK = Clock.zero()
ONES = np.ones((1, 2), np.float32)


def step_on(*terms):
    """A gradient step on terms of the parameter w = 0, in debugging."""
    init, step = learner(lambda key: {"q": {"w": jnp.zeros(())}}, optax.sgd(0.1))

    def loss(params):
        w = params["q"]["w"]
        made = [Term(f(w) * ONES, True, name) for name, f in terms]
        return Losses(made, jnp.zeros(2), {})

    state = init(jax.random.key(0))
    with debugging.debug():
        return step(state, loss, ONES, CLOCK)


def message(*terms):
    with pytest.raises(FloatingPointError) as caught:
        step_on(*terms)
    return debugging.describe(caught.value)


def test_a_term_that_is_not_finite_is_named():
    found = message(("first", lambda w: w), ("second", lambda w: 1 / w))
    assert "`second`" in found and "`first`" not in found and "inf" in found


def test_a_gradient_that_is_not_finite_is_named_with_its_term():
    found = message(("fine", lambda w: w), ("root", lambda w: jnp.sqrt(w * w)))
    assert "the gradient of the term `root`" in found
    assert "the loss of `q`" in found


def test_finite_terms_make_a_gradient_step():
    state, *_ = step_on(("linear", lambda w: 3 * w))
    assert float(state.params["q"]["w"]) == pytest.approx(-0.3)


def test_the_layer_and_the_line_of_a_nan_are_named():
    network = hk.without_apply_rng(
        hk.transform(lambda x: jnp.log(hk.Linear(1, w_init=jnp.ones)(x)))
    )
    x = -jnp.ones((1, 2))
    params = network.init(None, x)
    params["linear"]["b"] = jnp.array([np.nan])
    with debugging.debug(), name_layers(), pytest.raises(FloatingPointError) as caught:
        network.apply(params, x)
    found = debugging.describe(caught.value)
    assert "layer `linear`" in found and "test_debugging.py" in found
    assert not debugging.is_debugging()
