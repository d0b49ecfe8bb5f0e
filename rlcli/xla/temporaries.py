"""Temporaries: the memory that a traced program needs in addition to its arguments.

It is a lower bound, computed from the jaxpr before compilation. XLA computes
elementwise operations where their results are read. Only the results of matrix
products, convolutions, gathers, sorts and the like have to be written to memory. An
elementwise result reuses the memory of an operand that no later operation reads.
In-place updates and loops reuse the memory of the operand that they update.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core

_WRITTEN = frozenset(  # primitives whose results are written to memory
    [
        *("dot_general", "conv_general_dilated", "gather", "scatter", "scatter-add"),
        *("sort", "top_k", "cumsum", "concatenate", "pad", "transpose"),
        *("dynamic_slice", "random_bits", "rng_bit_generator"),
    ]
)
_UPDATES = frozenset(  # primitives that update an operand in place
    ["dynamic_update_slice", "scatter", "scatter-add", "while", "scan", "cond"]
)


class _Count(NamedTuple):
    """The memory of a jaxpr in addition to its arguments, in bytes."""

    peak: int
    results: Sequence[int]  # one entry per result


def temporary_bytes(jaxpr: core.ClosedJaxpr) -> int:
    """A lower bound on the peak bytes of live temporaries."""
    return _count_memory(jaxpr.jaxpr, {}).peak


def tree_bytes(tree: Any) -> int:
    """The bytes of all arrays of a tree, which may be shapes."""
    return sum(
        math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)
    )


def _count_memory(jaxpr: core.Jaxpr, known: dict[int, _Count]) -> _Count:
    """Counts the memory of a jaxpr; `known` caches earlier counts by identity."""
    if id(jaxpr) in known:
        return known[id(jaxpr)]
    last = _last_uses(jaxpr)
    alive: dict[Any, int] = {}
    total = peak = 0
    for index, equation in enumerate(jaxpr.eqns):
        inner = [_count_memory(called, known) for called in _jaxprs_in(equation)]
        read = dict.fromkeys(v for v in equation.invars if isinstance(v, core.Var))
        dying = {v: alive[v] for v in read if last.get(v) == index and v in alive}
        new, reused = _results(equation, inner, dying)
        inner_peak = max((count.peak for count in inner), default=0)
        peak = max(peak, total + max(inner_peak, sum(new) - reused))
        total += sum(new) - sum(dying.values())
        for variable in dying:
            del alive[variable]
        for variable, size in zip(equation.outvars, new, strict=True):
            alive[variable] = size
            if variable not in last:  # never read
                total -= alive.pop(variable)
    results = [
        alive.get(variable, 0) if isinstance(variable, core.Var) else 0
        for variable in jaxpr.outvars
    ]
    known[id(jaxpr)] = _Count(peak, results)
    return known[id(jaxpr)]


def _last_uses(jaxpr: core.Jaxpr) -> dict[core.Var, int]:
    """The last equation that reads each variable; past the end for results."""
    last = {
        variable: index
        for index, equation in enumerate(jaxpr.eqns)
        for variable in equation.invars
        if isinstance(variable, core.Var)
    }
    end = len(jaxpr.eqns)
    return last | {v: end for v in jaxpr.outvars if isinstance(v, core.Var)}


def _results(
    equation: Any, inner: Sequence[_Count], dying: dict[core.Var, int]
) -> tuple[list[int], int]:
    """The bytes of each result, and how many of them are reused from operands.

    `dying` has the bytes of the operands that no later equation reads.
    """
    sizes = [_size(variable) for variable in equation.outvars]
    name = equation.primitive.name
    if name in _UPDATES:
        pairs = [_update_bytes(size, equation.invars, dying) for size in sizes]
        return [size for size, _ in pairs], sum(reused for _, reused in pairs)
    if name in _WRITTEN:
        return sizes, 0
    new = [*inner[0].results] if inner else [0] * len(sizes)  # the results of a `jit`
    left = sum(dying.values())
    for index, size in enumerate(sizes):
        if not new[index]:
            new[index] = min(size, left)
            left -= new[index]
    return new, sum(dying.values()) - left


def _update_bytes(
    size: int, operands: Sequence[Any], dying: dict[core.Var, int]
) -> tuple[int, int]:
    """The bytes of a result, and those reused from the operand that it updates."""
    candidates = [operand for operand in operands if _size(operand) == size]
    if not candidates:
        return size, 0
    variables = [item for item in candidates if isinstance(item, core.Var)]
    reused = max((dying.get(variable, 0) for variable in variables), default=0)
    return reused, reused


def _jaxprs_in(equation: Any) -> Iterator[core.Jaxpr]:
    """The jaxprs that an equation calls: a loop, a branch or a `jit`."""
    for value in equation.params.values():
        for item in value if isinstance(value, list | tuple) else [value]:
            inner = getattr(item, "jaxpr", item)
            if isinstance(inner, core.Jaxpr):
                yield inner


def _size(variable: Any) -> int:
    """The bytes of a variable; 0 if it is not an array."""
    shape = getattr(variable.aval, "shape", None)
    dtype = getattr(variable.aval, "dtype", None)
    return 0 if shape is None or dtype is None else math.prod(shape) * dtype.itemsize
