"""Temporaries: the memory that a traced program needs beside its arguments.

A lower bound from the jaxpr alone, before anything is compiled. XLA computes
elementwise operations where their results are read. Only the results of matrix
products, convolutions, gathers, sorts and the like have to be written to memory. An
elementwise result takes over the memory of an operand that nothing else reads; updates
in place and loops reuse the memory of what they update.
"""

from __future__ import annotations

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
    """What a jaxpr takes beside its arguments, in bytes."""

    peak: int
    results: Sequence[int]  # of each of its results


def temporary_bytes(jaxpr: core.ClosedJaxpr) -> int:
    """The most bytes of temporaries that are alive at once, at least."""
    return _counted(jaxpr.jaxpr, {}).peak


def tree_bytes(tree: Any) -> int:
    """The bytes of all arrays of a tree, which may be shapes."""
    return sum(
        math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)
    )


def _counted(jaxpr: core.Jaxpr, known: dict[int, _Count]) -> _Count:
    """Counts a jaxpr; `known` has those that were counted before, by their identity."""
    if id(jaxpr) in known:
        return known[id(jaxpr)]
    last = _last_uses(jaxpr)
    alive: dict[Any, int] = {}
    total = peak = 0
    for index, equation in enumerate(jaxpr.eqns):
        inner = [_counted(each, known) for each in _jaxprs_in(equation)]
        read = dict.fromkeys(v for v in equation.invars if isinstance(v, core.Var))
        dying = {v: alive[v] for v in read if last.get(v) == index and v in alive}
        new, taken_over = _results(equation, inner, dying)
        within = max((each.peak for each in inner), default=0)
        peak = max(peak, total + max(within, sum(new) - taken_over))
        total += sum(new) - sum(dying.values())
        for variable in dying:
            del alive[variable]
        for variable, size in zip(equation.outvars, new, strict=True):
            alive[variable] = size
            if variable not in last:  # that nothing reads
                total -= alive.pop(variable)
    results = [
        alive.get(each, 0) if isinstance(each, core.Var) else 0
        for each in jaxpr.outvars
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
    """Bytes of each result, and how many of them are taken over from operands.

    `dying` are the bytes of the operands that nothing reads later.
    """
    sizes = [_size(each) for each in equation.outvars]
    name = equation.primitive.name
    if name in _UPDATES:
        found = [_updated(size, equation.invars, dying) for size in sizes]
        return [size for size, _ in found], sum(taken for _, taken in found)
    if name in _WRITTEN:
        return sizes, 0
    new = [*inner[0].results] if inner else [0] * len(sizes)  # of a `jit`, its own
    left = sum(dying.values())
    for index, size in enumerate(sizes):
        if not new[index]:
            new[index] = min(size, left)
            left -= new[index]
    return new, sum(dying.values()) - left


def _updated(
    size: int, operands: Sequence[Any], dying: dict[core.Var, int]
) -> tuple[int, int]:
    """Bytes of a result, and those taken over from the operand that it updates."""
    alike = [each for each in operands if _size(each) == size]
    if not alike:
        return size, 0
    variables = [each for each in alike if isinstance(each, core.Var)]
    taken = max((dying.get(each, 0) for each in variables), default=0)
    return taken, taken


def _jaxprs_in(equation: Any) -> Iterator[core.Jaxpr]:
    """The jaxprs that an equation calls: of a loop, a branch, a `jit`."""
    for value in equation.params.values():
        for each in value if isinstance(value, list | tuple) else [value]:
            inner = getattr(each, "jaxpr", each)
            if isinstance(inner, core.Jaxpr):
                yield inner


def _size(variable: Any) -> int:
    """The bytes of a variable; 0 of what is no array."""
    shape = getattr(variable.aval, "shape", None)
    dtype = getattr(variable.aval, "dtype", None)
    return 0 if shape is None or dtype is None else math.prod(shape) * dtype.itemsize
