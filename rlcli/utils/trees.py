"""Trees: functions of pytrees of arrays."""

import operator
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from rlcli.types import Array, ArrayTree


def batch_to_single(pytree: ArrayTree, index: int = 0) -> ArrayTree:
    """Selects one instance of a batch: each leaf `[N, ...]` at `index`."""
    return jax.tree.map(lambda leaf: leaf[index], pytree)


def single_to_batch(pytree: ArrayTree) -> ArrayTree:
    """Makes a batch of size 1: each leaf `[...]` becomes `[1, ...]`."""

    def expand(leaf: Any) -> Any:
        numpy = jnp if isinstance(leaf, jax.Array) else np
        return numpy.expand_dims(leaf, 0)

    return jax.tree.map(expand, pytree)


def chunks_pow2(batch: ArrayTree) -> list[ArrayTree]:
    """Splits a batch into chunks whose sizes are descending powers of two.

    Splits along the first axis: 13 rows give chunks of 8, 4 and 1. A function that is
    compiled for each shape is then compiled log₂ N times instead of N times.
    """
    sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(batch)}
    if len(sizes) != 1 or () in sizes:
        raise ValueError(f"expected leaves with a common first axis, got {sizes}")
    ((rows,),) = sizes
    chunks, start = [], 0
    for power in reversed(range(rows.bit_length())):
        if rows >> power & 1:
            take = operator.itemgetter(slice(start, start + 2**power))
            chunks.append(jax.tree.map(take, batch))
            start += 2**power
    return chunks


def stack_trees(*trees: ArrayTree) -> ArrayTree:
    """Stacks trees of the same structure: leaves `[...]` of N trees become `[N, ...]`.

    For example, `jax.vmap` can run several networks with stacked parameters.
    """
    if not trees:
        raise ValueError("expected at least one tree, got none")
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def tree_ravel(pytree: ArrayTree) -> Array:
    """Concatenates all leaves as one flat array `[n]`."""
    return ravel_pytree(pytree)[0]


def get_magnitude_quantiles(
    pytree: ArrayTree, key_prefix: str = ""
) -> dict[str, Array]:
    """The quartiles of |x| over all numbers of a tree, as scalars; works under `jit`.

    The keys are `min`, `p25`, `p50`, `p75` and `max`, each with the prefix.
    """
    magnitudes = jnp.abs(_ravel_floats(pytree))
    fractions = {"min": 0.0, "p25": 0.25, "p50": 0.5, "p75": 0.75, "max": 1.0}
    values = jnp.quantile(magnitudes, jnp.array([*fractions.values()]))
    return {key_prefix + name: values[i] for i, name in enumerate(fractions)}


def get_grads_diagnostics(
    grads: ArrayTree, key_prefix: str = "", keep_tree_structure: bool = False
) -> Any:
    """The magnitudes of gradients: maximum, norm and quartiles.

    The keys are `max`, `norm` (the square root of the sum of squares), `min`, `p25`,
    `p50` and `p75`, each with the prefix. Returns one dict over all numbers or, with
    `keep_tree_structure`, a tree with one dict per leaf.
    """
    if keep_tree_structure:
        return jax.tree.map(lambda leaf: get_grads_diagnostics(leaf, key_prefix), grads)
    norm = {f"{key_prefix}norm": jnp.linalg.norm(_ravel_floats(grads))}
    return get_magnitude_quantiles(grads, key_prefix) | norm


def _ravel_floats(pytree: ArrayTree) -> Array:
    flat = tree_ravel(pytree)
    if flat.size == 0:
        raise ValueError("expected a tree with at least one number, got none")
    return flat * 1.0  # as floats, because the magnitude of an integer could overflow


def merge_dicts(*dicts: Mapping[Any, Any]) -> dict[Any, Any]:
    """Merges dicts; the last value of a repeated key wins, with a warning."""
    merged: dict[Any, Any] = {}
    for mapping in dicts:
        repeated_keys = [key for key in mapping if key in merged]
        if repeated_keys:
            key_names = ", ".join(map(repr, repeated_keys))
            warnings.warn(
                f"repeated keys, the last value wins: {key_names}", stacklevel=2
            )
        merged.update(mapping)
    return merged


def sync_shared_params(
    *params: ArrayTree, weights: Sequence[float] | None = None
) -> tuple[ArrayTree, ...]:
    """Replaces parameters that several trees share by their average.

        θ = Σ wₖ θₖ / Σ wₖ        over the trees k that have them

    Parameters are shared if they have the same tree path in two trees or more. Others
    are unchanged. `weights` are positive, one per tree, and equal by default. Does not
    modify its arguments.
    """
    tree_weights = (
        [1.0] * len(params) if weights is None else [float(w) for w in weights]
    )
    if len(tree_weights) != len(params) or any(w <= 0 for w in tree_weights):
        raise ValueError(
            f"expected {len(params)} positive weights, one per tree, got {weights}"
        )
    flat = [jax.tree_util.tree_flatten_with_path(tree) for tree in params]
    owners: dict[Any, list[tuple[float, Any]]] = {}
    for weight, (leaves, _) in zip(tree_weights, flat, strict=True):
        for path, leaf in leaves:
            owners.setdefault(path, []).append((weight, leaf))
    averages = {
        path: _average(path, owned_leaves) for path, owned_leaves in owners.items()
    }
    return tuple(
        jax.tree.unflatten(structure, [averages[path] for path, _ in leaves])
        for leaves, structure in flat
    )


def _average(path: Any, weighted_leaves: list[tuple[float, Any]]) -> Any:
    """The weighted average of one leaf over the trees that have it."""
    if len(weighted_leaves) == 1:
        return weighted_leaves[0][1]
    if len({jnp.shape(leaf) for _, leaf in weighted_leaves}) != 1:
        name = jax.tree_util.keystr(path)
        shapes = [jnp.shape(leaf) for _, leaf in weighted_leaves]
        raise ValueError(
            f"expected equal shapes of the shared leaves at {name}, got {shapes}"
        )
    total = sum(weight for weight, _ in weighted_leaves)
    return sum(weight / total * leaf for weight, leaf in weighted_leaves)
