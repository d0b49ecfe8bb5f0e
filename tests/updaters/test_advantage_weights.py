"""Advantage weights, against NumPy."""

import numpy as np

from rlcli.updaters.advantage_weights import exponential_weight


def test_the_weight_is_the_exponential_of_the_advantage_up_to_a_limit():
    advantage = np.array([[-1e6, -2.0, 0.0, 0.5, 3.0, 1e6]], "f4")
    expected = np.array([[0, np.exp(-6), 1, np.exp(1.5), 20, 20]])
    weight = exponential_weight(advantage, 3.0, 20.0)
    np.testing.assert_allclose(weight, expected, rtol=1e-5)


def test_with_beta_0_all_weights_are_1():
    np.testing.assert_array_equal(exponential_weight(np.ones((2, 3), "f4"), 0, 20), 1)
