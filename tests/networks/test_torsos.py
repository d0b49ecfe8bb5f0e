"""Torsos of vectors, against NumPy."""

import itertools

import haiku as hk
import jax
import numpy as np
import pytest

from rlcli.networks.torsos import mlp

ROWS, INPUTS, UNITS = 6, 3, 4


def features(key=None, **options):
    """The inputs, the parameters of one layer, and its features."""
    made = hk.transform(mlp(layers=[UNITS], **options).features)
    x = np.random.default_rng(0).normal(size=(ROWS, INPUTS)).astype("f4")
    params = jax.device_get(jax.jit(made.init)(jax.random.key(0), x))
    return x, params, np.asarray(jax.jit(made.apply)(params, key, x))


@pytest.mark.parametrize("layer_norm", [False, True])
def test_dropout_is_between_the_weights_and_the_normalization(layer_norm):
    """Each row equals the equations for exactly one set of dropped units."""
    rate = 0.25
    x, params, found = features(jax.random.key(1), dropout=rate, layer_norm=layer_norm)
    pre = x @ params["linear"]["w"] + params["linear"]["b"]
    dropped = 0
    for row, features_found in zip(pre, found, strict=True):
        matches = []
        for mask in itertools.product([0, 1], repeat=UNITS):
            values = row * np.array(mask) / (1 - rate)
            if layer_norm:
                variance = values.var() + 1e-5
                values = (values - values.mean()) / np.sqrt(variance)
            if np.allclose(np.maximum(values, 0), features_found, atol=1e-4):
                matches.append(mask)
        assert matches  # units below 0 look alike, dropped or not
        dropped += min(UNITS - sum(mask) for mask in matches)
    assert dropped > 0


def test_without_a_key_nothing_is_dropped():
    *_, plain = features()
    *_, found = features(dropout=0.9)
    np.testing.assert_array_equal(found, plain)
