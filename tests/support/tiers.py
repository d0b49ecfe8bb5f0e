"""Which parameters of a test belong to `make test`, and which to `make test-slow`."""

from collections.abc import Iterable
from typing import Any

import pytest


def quick_first(values: Iterable[Any], *, quick: int = 1) -> list[Any]:
    """The parameters, of which all but the first are slow; tuples are several."""
    values = [*values]
    rows = [value if isinstance(value, tuple) else (value,) for value in values[quick:]]
    slow = [pytest.param(*row, marks=pytest.mark.slow) for row in rows]
    return [*values[:quick], *slow]
