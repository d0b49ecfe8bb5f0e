"""Flags of XLA that the installed jaxlib knows. Does not import JAX.

XLA ends a process whose `XLA_FLAGS` has an unknown flag, and flags come and go with the
versions of jaxlib. jaxlib has no function that lists them, but its library contains the
name of each as a C string.
"""

import contextlib
import importlib.util
import json
import mmap
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import platformdirs

from rlcli.errors import RlcliError, quote

_ASK = "import jaxlib.xla_client as client; client.make_cpu_client()"
_COMPLAINT = re.compile(r"^[EF]\d{4} .*?\] (.*)$", re.MULTILINE)  # XLA's log
_LONGEST = 200  # characters of XLA's message
_PATIENCE = 60  # seconds for its answer
_LIBRARIES = 16  # with answers: each virtual environment has its own


def is_known_flag(flag: str) -> bool:
    """Whether the installed jaxlib knows a flag, such as `--xla_dump_to`.

    False if jaxlib is not installed. The library has some 300 MB, so the answer is kept
    in the user's cache folder for each version of it.
    """
    if (library := _jaxlib_library()) is None:
        return False
    path, key = _answers_of(library)
    answers = _read_answers(path, key)
    if flag not in answers:
        answers[flag] = _contains(library, flag)
        _write_answers(path, key, answers)
    return answers[flag]


def require_known_flags() -> None:
    """Raises an `RlcliError` if XLA would end the process for its `XLA_FLAGS`.

    XLA itself is asked, in another process, unless all are plain flags with the values
    that were accepted before. Takes no time without the variable.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if not flags.strip() or (library := _jaxlib_library()) is None:
        return
    path, key = _answers_of(library)
    answers = _read_answers(path, key)
    if answers.get(setting := f"XLA_FLAGS={flags}"):
        return
    if complaint := _ask_xla():
        raise RlcliError(
            f"XLA cannot use the environment variable {quote(setting)}: "
            f"{quote(complaint, _LONGEST)[1:-1]}",
            "correct its value, or unset it",
        )
    if flags.lstrip().startswith("--"):  # else the name of a file, which may change
        _write_answers(path, key, {**answers, setting: True})


def _ask_xla() -> str:
    """What XLA says when it ends a process with these variables; "" if it does not."""
    try:
        asked = subprocess.run(
            [sys.executable, "-P", "-c", _ASK],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""  # no answer: JAX will see
    found = _COMPLAINT.search(asked.stderr) if asked.returncode else None
    return found[1] if found else ""


def _answers_of(library: Path) -> tuple[Path, str]:
    """The file of the answers, and the key of this version of the library."""
    status = library.stat()
    key = f"{library} {status.st_size} {status.st_mtime_ns}"
    return platformdirs.user_cache_path("rlcli") / "xla_flags.json", key


def _jaxlib_library() -> Path | None:
    """The library of jaxlib that contains XLA: its largest file."""
    specification = importlib.util.find_spec("jaxlib")  # does not import it
    folders = specification and specification.submodule_search_locations
    files = [
        path
        for folder in folders or ()
        for pattern in ("*.so*", "*.dylib", "*.pyd", "*.dll")
        for path in Path(folder).glob(pattern)
    ]
    return max(files, key=lambda path: path.stat().st_size, default=None)


def _contains(library: Path, flag: str) -> bool:
    """Whether a library contains the name of a flag, between two NUL bytes."""
    name = b"\0" + flag.removeprefix("--").encode() + b"\0"
    with (
        library.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return content.find(name) >= 0


def _read_answers(path: Path, key: str) -> dict[str, bool]:
    """The earlier answers about a library; none if the file is damaged."""
    return _read_all(path).get(key, {})


def _read_all(path: Path) -> dict[str, dict[str, bool]]:
    """The answers about each library; none if the file is damaged."""
    try:
        stored: Any = json.loads(path.read_text(encoding="utf-8"))
        return {
            library: {flag: answer is True for flag, answer in answers.items()}
            for library, answers in stored.items()
        }
    except (OSError, ValueError, AttributeError):
        return {}


def _write_answers(path: Path, key: str, answers: dict[str, bool]) -> None:
    """Replaces the file, in one step: other processes may read it at this moment."""
    others = [item for item in _read_all(path).items() if item[0] != key]
    content = dict(others[1 - _LIBRARIES :]) | {key: answers}
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):  # without a cache folder it is searched again
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(content), encoding="utf-8")
        partial.replace(path)
