"""Fixtures of the distribution tests."""

import jax
import numpy as np
import pytest


@pytest.fixture
def rng():
    """A generator for each test: its inputs do not depend on other tests."""
    return np.random.default_rng(1)


@pytest.fixture(scope="session")
def compile_family():
    """A family with its functions compiled, which give NumPy's arrays.

    A program per function, and not one per operation, which would take far longer.
    """

    def numpy(function, **options):
        made = jax.jit(function, **options)
        return lambda *arguments: jax.tree.map(np.asarray, made(*arguments))

    def all_of(family):
        functions = family._asdict()
        draw = numpy(functions.pop("draw"), static_argnums=1)
        made = {name: numpy(each) for name, each in functions.items() if callable(each)}
        return family._replace(draw=draw, **made)

    return all_of
