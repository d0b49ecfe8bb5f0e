"""Random parameters, without compiling the initializers of a network."""

import jax
import numpy as np


def normal_like(tree, seed=0, scale=1.0):
    """A pytree of float32 arrays, of these shapes and this standard deviation."""
    rng = np.random.default_rng(seed)

    def draw(leaf):
        return rng.normal(scale=scale, size=leaf.shape).astype("f4")

    return jax.tree.map(draw, tree)
