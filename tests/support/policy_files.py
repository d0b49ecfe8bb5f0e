"""Policy files of runs that were never trained: with random parameters."""

from pathlib import Path

import jax
import numpy as np

from rlcli.assembly import build
from rlcli.loop.progress import Setup
from rlcli.recipe import load_recipe
from rlcli.runs import snapshots
from rlcli.xla.tree_paths import leaves_by_path


def draw_acting(setup: Setup, scale=0.5):
    """Random parameters of each seed, as the policy of a setup reads them."""
    shapes = jax.eval_shape(lambda: snapshots._acting_state(setup))
    rng = np.random.default_rng(0)

    def draw(name, leaf):
        values = scale * rng.normal(size=(len(setup.seeds), *leaf.shape))
        return (np.abs(values) if "variance" in name else values).astype(leaf.dtype)

    leaves = [draw(name, leaf) for name, leaf in leaves_by_path(shapes).items()]
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def write_policy(folder: Path, data, seeds=(0,), scale=0.5, frozen=None) -> Path:
    """Writes a policy file, with parameters of this standard deviation."""
    recipe = load_recipe(data)
    file = folder / "policy.pkl.lz4"
    acting = leaves_by_path(draw_acting(build(recipe, seeds), scale))
    counts = (100,) * len(seeds)
    snapshot = snapshots.Snapshot(recipe, seeds, counts, counts, (), acting)
    snapshots.save_policy(file, snapshot._replace(frozen=frozen or {}))
    return file
