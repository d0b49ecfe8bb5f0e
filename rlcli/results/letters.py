"""Letters: short names of curves and groups: A, B, …, Z, AA, AB, …"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from string import ascii_uppercase


def name_letters() -> Iterator[str]:
    """A, B, …, Z, AA, AB, …"""
    for length in itertools.count(1):
        yield from map("".join, itertools.product(ascii_uppercase, repeat=length))
