"""Residual networks, against the equations of their paper."""

import haiku as hk
import jax
import numpy as np

from rlcli.networks.images import residual


def test_residual_blocks_add_to_their_inputs():
    """Blocks with zero weights are the identity: the features are norm(W₀ x)."""
    made = hk.without_apply_rng(hk.transform(residual(width=8, blocks=3).features))
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("f4")
    shapes = jax.eval_shape(made.init, jax.random.key(0), [x])
    numbers = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))
    assert numbers == (3 * 8 + 8) + 3 * (16 + 8 * 32 + 32 + 32 * 8 + 8) + 16
    params = jax.tree.map(lambda shape: np.zeros(shape.shape, "f4"), shapes)
    weights = np.random.default_rng(1).normal(size=(3, 8)).astype("f4")
    params["linear"]["w"] = weights
    for name in params:
        if name.startswith("layer_norm"):
            params[name]["scale"] += 1
    row = x @ weights
    row = row - row.mean(-1, keepdims=True)
    expected = row / np.sqrt((row**2).mean(-1, keepdims=True) + 1e-5)
    actual = jax.jit(made.apply)(params, [x])
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_a_residual_network_equals_the_equations_of_simba():
    options = {"width": 4, "blocks": 2, "expansion": 3}
    made = hk.without_apply_rng(hk.transform(residual(**options).features))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 3)).astype("f4")
    shapes = jax.eval_shape(made.init, jax.random.key(0), [x])
    params = jax.tree.map(
        lambda shape: rng.normal(size=shape.shape).astype("f4"), shapes
    )

    def norm(values, index):
        module = params[f"layer_norm_{index}" if index else "layer_norm"]
        centred = values - values.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * module["scale"] + module["offset"]

    def layer(values, index):
        module = params[f"linear_{index}" if index else "linear"]
        return values @ module["w"] + module["b"]

    features = layer(x, 0)
    for block in range(2):
        hidden = np.maximum(layer(norm(features, block), 2 * block + 1), 0)
        assert hidden.shape == (5, 12)
        features = features + layer(hidden, 2 * block + 2)
    actual = jax.jit(made.apply)(params, [x])
    np.testing.assert_allclose(actual, norm(features, 2), rtol=1e-3, atol=1e-3)
