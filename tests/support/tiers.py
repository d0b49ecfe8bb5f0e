"""Which parameters of a test belong to `make test`, and which to `make test-slow`."""

from collections.abc import Iterable
from typing import Any

import pytest


def quick_first(values: Iterable[Any]) -> list[Any]:
    """The parameters, of which only the first is not slow; tuples are several."""
    first, *others = values
    rows = [value if isinstance(value, tuple) else (value,) for value in others]
    return [first, *(pytest.param(*row, marks=pytest.mark.slow) for row in rows)]
