"""Naming: names and tags of runs, and the part of a folder's name with the overrides.

Everything here is safe in file names and in shells without quotes.
"""

import itertools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from rlcli.errors import RlcliError, quote

LONGEST_NAME = 80  # characters of a name, a tag, or the overrides in a folder's name
TIME_FORMAT = "%Y-%m-%dT%H-%M-%S"  # of UTC, in the name of a folder
LONGEST_VALUE = 24  # characters of a value in a folder's name
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._+=,@-]{{0,{LONGEST_NAME - 1}}}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


def check_name(name: str, what: str = "name") -> str:
    """The name or tag of a run; an `RlcliError` if a folder cannot have this name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RlcliError(
            f"{quote(name)} cannot be the {what} of a run",
            f"use at most {LONGEST_NAME} letters, digits and `._+=,@-`, and begin with "
            "a letter or a digit",
        )
    return name


def name_or_time(name: str | None) -> str:
    """The name of a new folder: `name`, or the current time, `2026-11-20T10-00-00`."""
    if name is None:
        return time.strftime(TIME_FORMAT, time.gmtime())
    return check_name(name)


def number_folder(
    folder: Path, is_taken: Callable[[Path], bool] = os.path.lexists
) -> Path:
    """The folder, or the first of `<folder>-2`, `<folder>-3`, … that is not taken."""
    numbered = (folder.with_name(f"{folder.name}-{n}") for n in itertools.count(2))
    return next(
        each for each in itertools.chain([folder], numbered) if not is_taken(each)
    )


def place_folder(parent: Path, folder: str | Path | None, name: str | None) -> Path:
    """A new folder: `folder`, or one in `parent` with a name or the current time."""
    own = name_or_time(name)  # refuses one that cannot be, also beside a folder
    return number_folder(parent / own) if folder is None else Path(folder)


def check_tags(tags: Sequence[str]) -> list[str]:
    """The tags of a run without duplicates, in their order."""
    if isinstance(tags, str):
        raise RlcliError(f"expected a list of tags, got the string {quote(tags)}")
    return list(dict.fromkeys(check_name(tag, "tag") for tag in tags))


def describe_overrides(sets: Sequence[str]) -> str:
    """The overrides `a.b=value` of a run in a short form, for its folder's name.

    Keys are shortened by `shorten_keys`. Overrides beyond `LONGEST_NAME` are counted.

    >>> describe_overrides(["optimizer.learning_rate=5e-4", "updater.name=ppo"])
    'learning_rate=5e-4,updater=ppo'
    """
    pairs = (setting.partition("=") for setting in sets)
    values = {key.strip(): make_safe(value) for key, _, value in pairs}
    names = shorten_keys([*values])
    parts = [
        f"{make_safe(name)}={value[:LONGEST_VALUE]}"
        for name, value in zip(names, values.values(), strict=True)
    ]
    for count in range(len(parts), -1, -1):
        rest = [f"+{len(parts) - count}"] if count < len(parts) else []
        text = ",".join(parts[:count] + rest)
        if len(text) <= LONGEST_NAME:
            break
    return text


def make_safe(text: str) -> str:
    """A text without characters that file names or shells treat in a special way."""
    return "-".join(_UNSAFE.sub(" ", text).split())


def name_folder(text: str) -> str:
    """The name of a folder after a text from anywhere; "" if nothing of it is left.

    Not that of a hidden folder, an option of a command, or a record of rlcli.

    >>> name_folder("../my recipe"), name_folder("study.json")
    ('my-recipe', 'study-json')
    """
    return make_safe(text).lstrip(".-").replace(".json", "-json")[:LONGEST_NAME]


def shorten_keys(keys: Sequence[str]) -> list[str]:
    """Dotted keys without their section, unless two would be equal.

    >>> shorten_keys(["optimizer.learning_rate", "updater.name", "policy.epsilon.to"])
    ['learning_rate', 'updater', 'epsilon.to']
    """
    names = [key.removesuffix(".name") for key in keys]
    short = [name.partition(".")[2] or name for name in names]
    counts = Counter(short)
    return [
        name if counts[each] > 1 else each
        for name, each in zip(names, short, strict=True)
    ]
