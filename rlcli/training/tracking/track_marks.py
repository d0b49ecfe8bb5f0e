"""Track marks: the file `trackers.json`, which records how far each tracker is."""

import inspect
import re
import threading
import uuid
from pathlib import Path
from typing import Any

from rlcli import registry
from rlcli.errors import RlcliError, quote
from rlcli.recipe import Part
from rlcli.recipe.grammar import to_plain
from rlcli.runs.files import read_json, to_json, write_json

_HINT = "restore it, or remove it: the trackers then get all rows again, as a new run"


class Marks:
    """The id of a run in its trackers, and the last step of each."""

    def __init__(self, path: Path) -> None:
        """Reads the file; an `RlcliError` if it is damaged."""
        self._path = path
        self._lock = threading.Lock()
        data = read_json(path, _HINT)
        for name, is_sound in (("id", _is_id), ("steps", _is_steps)):
            if data and not is_sound(data.get(name)):
                value = quote(to_json(data.get(name)))
                message = f"`{path}` is damaged: `{name}` is {value}"
                raise RlcliError(message, _HINT)
        self.id: str = data.get("id") or uuid.uuid4().hex[:16]
        self._steps: dict[str, int] = data.get("steps") or {}

    def step(self, key: str) -> int:
        """The last step that a tracker has; 0 if it has none."""
        return self._steps.get(key, 0)

    def set_step(self, key: str, step: int) -> None:
        """Records the last step that a tracker has."""
        with self._lock:
            self._steps[key] = step
            write_json(self._path, {"id": self.id, "steps": self._steps})


def mark_key(part: Part) -> str:
    """The name of a tracker, and the options that differ from their defaults.

    With other options a tracker may send the results to another place, which has none.
    """
    factory = registry.find("tracker", part.name).factory
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(factory).parameters.items()
    }
    options = {
        name.removesuffix("_"): to_plain(value)
        for name, value in sorted(part.options.items())
        if name not in defaults or value != defaults[name]
    }
    return f"{part.name} {to_json(options)}" if options else part.name


def _is_id(value: Any) -> bool:
    # Trackers send it to their servers, in queries and addresses.
    return isinstance(value, str) and re.fullmatch(r"[\w-]{1,64}", value) is not None


def _is_steps(value: Any) -> bool:
    """Whether a value is `{tracker: step}`."""
    return isinstance(value, dict) and all(
        type(step) is int and step >= 0 for step in value.values()
    )
