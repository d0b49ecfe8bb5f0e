"""Traced programs, as tests read them."""

import jax


def equations(jaxpr, *primitives):
    """The equations of these primitives, also in inner programs."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in primitives:
            yield equation
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            if hasattr(inner, "eqns"):
                yield from equations(inner, *primitives)
