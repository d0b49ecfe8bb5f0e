"""Dependencies: which inputs the results of a function depend on."""

from collections.abc import Callable
from typing import Any

import jax


def read_leaves(function: Callable, *inputs: Any) -> list[bool]:
    """Whether the results depend on each leaf of the inputs, which are only traced.

    A call within the function, such as a loop, counts as reading all that it is given.
    """
    jaxpr = jax.make_jaxpr(function)(*inputs).jaxpr
    needed = {id(variable) for variable in jaxpr.outvars}
    for equation in reversed(jaxpr.eqns):
        if not needed.isdisjoint(map(id, equation.outvars)):
            needed.update(map(id, equation.invars))
    return [id(variable) in needed for variable in jaxpr.invars]
