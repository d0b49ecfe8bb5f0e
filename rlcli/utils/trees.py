"""Trees: functions of nested containers whose leaves are arrays."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from rlcli.types import Array, ArrayTree


def batch_to_single(pytree: ArrayTree, index: int = 0) -> ArrayTree:
    """One instance out of a batch: each leaf `[N, ...]` at `index`."""
    return jax.tree.map(lambda leaf: leaf[index], pytree)


def single_to_batch(pytree: ArrayTree) -> ArrayTree:
    """One instance as a batch of one: each leaf `[...]` becomes `[1, ...]`."""

    def batched(leaf: Any) -> Any:
        numpy = jnp if isinstance(leaf, jax.Array) else np
        return numpy.expand_dims(leaf, 0)

    return jax.tree.map(batched, pytree)


def chunks_pow2(batch: ArrayTree) -> list[ArrayTree]:
    """Consecutive chunks whose sizes are powers of two, descending.

    Cut along the first axis: 13 rows give chunks of 8, 4 and 1. So a function compiled
    for each shape is compiled log₂ N times and not N.
    """
    sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(batch)}
    if len(sizes) != 1 or () in sizes:
        raise ValueError(f"expected leaves with one first axis in common, got {sizes}")
    ((rows,),) = sizes
    chunks, start = [], 0
    for power in reversed(range(rows.bit_length())):
        if rows >> power & 1:
            chunks.append(_rows(batch, slice(start, start + 2**power)))
            start += 2**power
    return chunks


def _rows(batch: ArrayTree, rows: slice) -> ArrayTree:
    return jax.tree.map(lambda leaf: leaf[rows], batch)


def stack_trees(*trees: ArrayTree) -> ArrayTree:
    """Trees of one structure as one: leaves `[...]` of N trees become `[N, ...]`.

    Parameters of several networks, for example, that `jax.vmap` then runs at once.
    """
    if not trees:
        raise ValueError("expected at least one tree, got none")
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def tree_ravel(pytree: ArrayTree) -> Array:
    """All leaves one after the other, as one flat array `[n]`."""
    return ravel_pytree(pytree)[0]


def get_magnitude_quantiles(
    pytree: ArrayTree, key_prefix: str = ""
) -> dict[str, Array]:
    """The quartiles of |x| over every number of a tree; scalars, also under `jit`.

    The keys are `min`, `p25`, `p50`, `p75` and `max`, each with the prefix.
    """
    magnitudes = jnp.abs(_ravel_floats(pytree))
    shares = {"min": 0.0, "p25": 0.25, "p50": 0.5, "p75": 0.75, "max": 1.0}
    values = jnp.quantile(magnitudes, jnp.array([*shares.values()]))
    return {key_prefix + name: values[i] for i, name in enumerate(shares)}


def get_grads_diagnostics(
    grads: ArrayTree, key_prefix: str = "", keep_tree_structure: bool = False
) -> Any:
    """How large gradients are: their greatest magnitude, norm, and its quartiles.

    The keys are `max`, `norm` (the square root of the sum of squares), `min`, `p25`,
    `p50` and `p75`, each with the prefix. One dict over every number; or, to keep the
    structure, a tree with such a dict in the place of each leaf.
    """
    if keep_tree_structure:
        return jax.tree.map(lambda leaf: get_grads_diagnostics(leaf, key_prefix), grads)
    norm = {f"{key_prefix}norm": jnp.linalg.norm(_ravel_floats(grads))}
    return get_magnitude_quantiles(grads, key_prefix) | norm


def _ravel_floats(pytree: ArrayTree) -> Array:
    flat = tree_ravel(pytree)
    if flat.size == 0:
        raise ValueError("expected a tree with at least one number, got none")
    return flat * 1.0  # integers as floats, before their magnitude could overflow


def merge_dicts(*dicts: Mapping[Any, Any]) -> dict[Any, Any]:
    """One dict of several; of a key that comes again the last wins, with a warning."""
    merged: dict[Any, Any] = {}
    for mapping in dicts:
        repeated_keys = [key for key in mapping if key in merged]
        if repeated_keys:
            key_names = ", ".join(map(repr, repeated_keys))
            warnings.warn(
                f"keys that come again, the last wins: {key_names}", stacklevel=2
            )
        merged.update(mapping)
    return merged


def sync_shared_params(
    *params: ArrayTree, weights: Sequence[float] | None = None
) -> tuple[ArrayTree, ...]:
    """The same parameters, with those that are shared replaced by their average.

        θ = Σ wₖ θₖ / Σ wₖ        over the trees k that have them

    Shared is what lies under the same tree path in two trees or more; whatever only one
    has stays. `weights`, all positive, one for each tree; alike if left out. Nothing is
    changed in place.
    """
    shares = [1.0] * len(params) if weights is None else [float(w) for w in weights]
    if len(shares) != len(params) or any(share <= 0 for share in shares):
        raise ValueError(
            f"expected {len(params)} positive weights, one a tree, got {weights}"
        )
    flat = [jax.tree_util.tree_flatten_with_path(tree) for tree in params]
    owners: dict[Any, list[tuple[float, Any]]] = {}
    for share, (leaves, _) in zip(shares, flat, strict=True):
        for path, leaf in leaves:
            owners.setdefault(path, []).append((share, leaf))
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
            f"expected one shape of what is shared at {name}, got {shapes}"
        )
    total = sum(share for share, _ in weighted_leaves)
    return sum(share / total * leaf for share, leaf in weighted_leaves)
