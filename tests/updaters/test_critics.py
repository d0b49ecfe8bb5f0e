"""The regression of critics on bootstrap targets."""

import jax
import numpy as np
import pytest

from rlcli.networks.predictions import IDENTITY, LOSSES, Particles, Scalar
from rlcli.updaters.critics import regression_losses


def regress(prediction, target):
    prediction = Scalar(np.zeros(prediction, np.float32))
    target = Particles(*np.ones((2, *target), np.float32))
    return jax.eval_shape(
        lambda: regression_losses(prediction, target, LOSSES["mse"], IDENTITY)
    )


def test_each_row_has_one_loss_and_one_priority():
    losses = regress(prediction=(2, 4, 3, 1), target=(4, 3, 5))
    (term,) = losses.terms
    assert term.value.shape == losses.priority.shape == (4, 3)


@pytest.mark.parametrize(
    ("prediction", "target"),
    [
        ((4, 3, 1), (4, 3, 5)),  # without the axis of the ensemble
        ((2, 4, 3, 1), (1, 3, 5)),  # would broadcast over time
        ((2, 4, 3, 1), (4, 3)),  # a number instead of particles
    ],
)
def test_shapes_that_would_broadcast_are_refused(prediction, target):
    with pytest.raises(AssertionError, match=r"shape|rank"):
        regress(prediction, target)
