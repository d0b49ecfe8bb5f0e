"""Output: data goes to stdout, talk to stderr."""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

# What is printed may come from a file of somebody else's, and steer the terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def data(text: object) -> None:
    """Prints what was asked for, on stdout."""
    print(text)


def tell(text: str) -> None:
    """Prints what is good to know, on stderr, without control characters."""
    if sys.stderr is None:  # closed by the caller: `print` would choose stdout
        return
    with contextlib.suppress(BrokenPipeError):  # nobody listens
        print(_CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", text), file=sys.stderr)


def as_json(value: Any) -> str:
    """The value as JSON, for which NaN and infinity are no numbers: null."""
    return json.dumps(_finite(value), indent=2, ensure_ascii=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(each) for each in value]
    return value
