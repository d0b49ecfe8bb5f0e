"""Tree paths: a name for each leaf of a pytree, and its description."""

from typing import Any


def leaves_by_path(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by tree path, in the order of the tree."""
    import jax

    leaves: dict[str, Any] = {}
    for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        path = "/".join(_path_step(key) for key in keys)
        if path in leaves:
            raise ValueError(f"expected one leaf at `{path}`, got two")
        leaves[path] = leaf
    return leaves


def _path_step(key: Any) -> str:
    """One step of a tree path: a field, an index, or an escaped dict key."""
    for attribute in ("name", "idx", "key"):
        if hasattr(key, attribute):
            return escape_step(getattr(key, attribute))
    raise TypeError(f"expected a field, a key or an index, got {key!r}")


def escape_step(name: Any) -> str:
    """A name as a step of a tree path."""
    return str(name).replace("\\", "\\\\").replace("/", "\\/")


def describe_leaf(leaf: Any, axes: int = 0) -> str:
    """The dtype and the shape of a leaf, without leading `axes`: `float32[4, 64]`."""
    return f"{leaf.dtype}{[*leaf.shape[axes:]]}"


def describe_difference(ours: Any, theirs: Any) -> str:
    """How the leaves of one seed differ, `[S, ...]`, of which one may be None; or "".

    For example `float32[4, 64] here, nothing there`.
    """
    here, there = (
        "nothing" if leaf is None else describe_leaf(leaf, 1) for leaf in (ours, theirs)
    )
    return "" if here == there else f"{here} here, {there} there"
