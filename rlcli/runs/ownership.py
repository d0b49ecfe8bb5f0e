"""Ownership: which runs are the user's own, so that their code needs no `--trust`.

rlcli signs a run that it trains for its user, and a study (`study_ownership`). The key
is in a file that only the user can read. The signature of a run, in `run.json`, is a
statement with a keyed hash (HMAC-SHA256) of its claims:

- `folder`: where the run was made
- `recipe`: the hash of the recipe, without the numbers of `train` and without `init`,
  which run no code
- `trackers`: the hash of `train.trackers`, because some contact a host
- `code`: the hash of the record of the user's modules, with the hash of each file

Who copies a signature elsewhere gains nothing: the claims have to be those of the
recipe that is loaded, and the files that are imported those of the record.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcli.errors import RlcliError
from rlcli.runs import user_files
from rlcli.runs.files import parse_json, to_json

_KEY_BYTES = 32
# The options of `train` that decide which code runs; trackers have their own claim.
_DECISIVE = ("hooks",)
_CLAIMS = ("folder", "recipe", "trackers", "code")
_RUN = "run"  # the kind of the statements about runs


class Claims(NamedTuple):
    """What a valid signature says about a recipe and the folder of a run."""

    folder: str  # where the run was made
    is_here: bool  # whether that is this folder
    has_trackers: bool  # whether the recipe has the trackers that it had then


def sign(folder: Path, recipe: Mapping[str, Any], code: Mapping[str, Any]) -> str:
    """The signature of a run, as JSON text; creates the key of the user.

    Raises an `RlcliError` if the key cannot be used, for example because others can
    read it.
    """
    return sign_claims(_RUN, _make_claims(folder, recipe, code))


def sign_claims(kind: str, claims: Mapping[str, str]) -> str:
    """A statement with claims about a run or a study, as JSON text; creates the key.

    A statement of one kind says nothing about another. Raises as `sign` does.
    """
    mac = _mac(_read_key(create=True), kind, claims)
    return to_json({**claims, "mac": mac})


def read_claims(
    kind: str, names: Sequence[str], statement: object
) -> dict[str, Any] | None:
    """The claims, of these names, of a statement that this user has signed, or None."""
    try:
        key = _read_key()
        signed = parse_json(str(statement or "null"))
    except (RlcliError, ValueError, RecursionError):
        return None
    if not key or not isinstance(signed, dict) or {*signed} != {*names, "mac"}:
        return None
    claims = {name: signed[name] for name in names}
    mac = str(signed["mac"]).encode("utf-8", "replace")
    if not hmac.compare_digest(mac, _mac(key, kind, claims).encode()):
        return None
    return claims


def find_claims(
    folder: Path, info: Mapping[str, Any], recipes: Sequence[Mapping[str, Any]]
) -> Claims | None:
    """What the signature in `run.json` says about recipes; None if it is invalid.

    It is invalid for another recipe, another record of code, or another key.
    """
    claims = read_claims(_RUN, _CLAIMS, info.get("signature"))
    if claims is None:
        return None
    actual = [_make_claims(folder, each, info.get("code", {})) for each in recipes]
    if any(
        each[name] != claims[name] for each in actual for name in ("recipe", "code")
    ):
        return None
    return Claims(
        folder=claims["folder"],
        is_here=all(each["folder"] == claims["folder"] for each in actual),
        has_trackers=all(each["trackers"] == claims["trackers"] for each in actual),
    )


def is_remembered(path: Path) -> bool:
    """Whether a file or folder is in one that the user trusts, and nobody else writes.

    Links count as what they lead to.
    """
    full = Path(os.path.realpath(path))
    try:
        folders = read_trusted()
    except RlcliError:
        return False
    is_below = any(full.is_relative_to(folder) for folder in folders)
    return is_below and user_files.is_own(full)


def is_trusted(trust: bool | None, *places: Path) -> bool:
    """Whether the user trusts files and folders: `trust`, or None for `rlcli trust`."""
    return all(map(is_remembered, places)) if trust is None else trust


def read_trusted() -> list[str]:
    """The folders that the user trusts, absolute and without links."""
    path = user_files.trusted_file()
    data = user_files.read_private(path)
    try:
        content = parse_json(data.decode()) if data else {"folders": []}
        folders = content["folders"]
        if all(isinstance(each, str) and os.path.isabs(each) for each in folders):
            return [*folders]
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise RlcliError(
        f"`{path}` is damaged: it is not a list of folders",
        "remove it, and trust your folders again",
    )


def write_trusted(folders: Sequence[str]) -> None:
    """Replaces the folders that the user trusts."""
    text = to_json({"folders": sorted({*folders})}, indent=2) + "\n"
    user_files.write_private(user_files.trusted_file(), text.encode())


def _make_claims(
    folder: Path, recipe: Mapping[str, Any], code: Mapping[str, Any]
) -> dict[str, str]:
    train = recipe.get("train") or {}
    decisive = {name: train.get(name) for name in _DECISIVE if train.get(name)}
    return {
        "folder": os.path.realpath(folder),
        "recipe": hash_data({**recipe, "train": decisive, "init": None}),
        "trackers": hash_data(train.get("trackers") or []),
        "code": hash_data(code),
    }


def hash_data(value: Any) -> str:
    """The SHA-256 of plain data."""
    return hashlib.sha256(_canonical(value)).hexdigest()


def _mac(key: bytes, kind: str, claims: Mapping[str, Any]) -> str:
    text = f"rlcli {kind}\n".encode() + _canonical(claims)
    return hmac.digest(key, text, "sha256").hex()


def _canonical(value: Any) -> bytes:
    return json.dumps(parse_json(to_json(value)), sort_keys=True).encode()


def _read_key(*, create: bool = False) -> bytes:
    """The key of the user; b"" if there is none, and none is to be created."""
    path = user_files.key_file()
    key = user_files.read_private(path)
    if not key and create:
        user_files.create_private(path, secrets.token_bytes(_KEY_BYTES))
        key = user_files.read_private(path)  # perhaps of another process
    if key and len(key) != _KEY_BYTES:
        raise RlcliError(f"`{path}` is damaged", "remove it: rlcli writes a new one")
    return key
