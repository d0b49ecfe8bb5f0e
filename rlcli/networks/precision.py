"""Precision: the products of a network in bfloat16, with parameters in float32."""

from collections.abc import Callable
from typing import Any, Literal

import haiku as hk
import jax
import jax.numpy as jnp

from rlcli.networks.batch_norm import BatchRenorm
from rlcli.types import ArrayTree

Precision = Literal["float32", "bfloat16"]

_NORMS = (hk.LayerNorm, hk.RMSNorm, hk.GroupNorm, BatchRenorm)  # sums of many terms


def compute_in(precision: Precision, function: Callable[..., Any]) -> Callable:
    """A Haiku function whose modules compute in the given precision.

    With `bfloat16`, the floating-point inputs and the parameters of every module are
    rounded to bfloat16 before it uses them, except those of normalizations. Parameters
    are created and stored in float32, and so are gradients and outputs: the mixed
    precision of Micikevicius et al. (2018, https://arxiv.org/abs/1710.03740) without
    its scaling of the loss, because bfloat16 has the exponents of float32.
    """
    if precision == "float32":
        return function

    def compute(*inputs: Any) -> Any:
        with (
            hk.custom_creator(_create_in_float32),
            hk.custom_getter(_round_parameter),
            hk.intercept_methods(_round_inputs),
        ):
            return _cast(function(*inputs), jnp.float32)

    return compute


def _create_in_float32(
    create: Callable, shape: Any, dtype: Any, init: Callable, context: Any
) -> jax.Array:
    # Haiku gives a parameter the dtype of the module's inputs.
    is_rounded = dtype == jnp.bfloat16
    return create(shape, jnp.float32 if is_rounded else dtype, init)


def _round_parameter(get: Callable, value: jax.Array, context: Any) -> jax.Array:
    is_norm = isinstance(context.module, _NORMS)
    return get(value if is_norm else _cast(value, jnp.bfloat16))


def _round_inputs(
    method: Callable, arguments: tuple, keywords: dict[str, Any], context: Any
) -> Any:
    if context.method_name != "__call__":
        return method(*arguments, **keywords)
    is_norm = isinstance(context.module, _NORMS)
    dtype = jnp.float32 if is_norm else jnp.bfloat16
    return method(*_cast(arguments, dtype), **_cast(keywords, dtype))


def _cast(tree: ArrayTree, dtype: Any) -> ArrayTree:
    """The tree with its arrays of floating-point numbers in another dtype."""

    def cast_leaf(leaf: Any) -> Any:
        is_array = isinstance(leaf, jax.Array)
        is_float = is_array and jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(dtype) if is_float else leaf

    return jax.tree.map(cast_leaf, tree)
