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

The key, and the folders that the user trusts (`rlcli trust`), are files in the user's
folders that nobody else can change.
"""

import contextlib
import grp
import hashlib
import hmac
import json
import os
import pwd
import secrets
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import platformdirs

from rlcli.errors import RlcliError, quote
from rlcli.registry.paths import resolves
from rlcli.runs import files

_LARGEST = 2**20  # bytes
_REMOVE = "remove it: rlcli writes a new one"


def key_file() -> Path:
    """The file of the key with which rlcli signs the user's runs."""
    return platformdirs.user_data_path("rlcli") / "key"


def trusted_file() -> Path:
    """The file of the folders that the user trusts."""
    return platformdirs.user_config_path("rlcli") / "trusted.json"


def read_private(path: Path) -> bytes:
    """The content of a file that only its user can read and write; b"" if missing.

    Raises an `RlcliError` for a link, or a file that others own, read or write.
    """
    if not files.exists(path):
        return b""
    with files.open_regular(path, os.O_RDONLY, "rb") as file:
        status = os.fstat(file.fileno())
        problem = "it has another name, a hard link" if status.st_nlink > 1 else ""
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            problem = "others own it, or may read or write it"
        if problem:
            raise RlcliError(f"`{path}` is not used: {problem}", _REMOVE)
        return file.read(_LARGEST)


def create_private(path: Path, data: bytes) -> None:
    """Creates a file that only its user can read and write, unless it exists."""
    _make_folder(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with (
        files.name_file_in_errors(path, "created"),
        contextlib.suppress(FileExistsError),
    ):
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)


def _make_folder(path: Path) -> None:
    with files.name_file_in_errors(path.parent, "created"):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)


def is_own(path: Path) -> bool:
    """Whether only the user and root can change a file, or what stands in its place.

    Checks the path and all folders above it, as written and without links. A group of
    which the user is the only member may write, as in distributions that give each
    user one. In a folder like /tmp others may write, but not replace the path.
    """
    full = Path(os.path.abspath(path))
    try:
        for each in (full, full.resolve(strict=True)):
            if not _is_own(each) or not all(_is_own(p, True) for p in each.parents):
                return False
    except (OSError, RuntimeError):  # missing, or links in a circle
        return False
    return True


def is_own_module(name: str, source: Path) -> bool:
    """Whether only the user and root can change a module, and what Python finds there.

    In the folders of the module others could add modules or bytecode. `name` is its
    path below an entry of `sys.path`, such as `my_parts/network.py`.
    """
    folders = source.parents[: len(PurePosixPath(name).parts)]
    places = [source, *folders, *filter(Path.exists, [source.parent / "__pycache__"])]
    return all(map(is_own, places))


def _is_own(path: Path, may_be_sticky: bool = False) -> bool:
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        return False
    if may_be_sticky and status.st_mode & stat.S_ISVTX:
        return True
    if status.st_mode & stat.S_IWOTH:
        return False
    return not status.st_mode & stat.S_IWGRP or _is_private_group(status.st_gid)


def _is_private_group(group: int) -> bool:
    """Whether a group is that of the user alone: their main one, with their name."""
    with contextlib.suppress(KeyError):
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
        is_main = (user.pw_gid, user.pw_name) == (group, entry.gr_name)
        return is_main and {*entry.gr_mem} <= {user.pw_name}
    return False


_KEY_BYTES = 32
# The options of `train` that decide which code runs; trackers have their own claim.
_DECISIVE = ("hooks",)
_CLAIMS = ("folder", "recipe", "trackers", "code")
_RUN = "run"  # the kind of the statements about runs


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
    return files.to_json({**claims, "mac": mac})


def read_claims(
    kind: str, names: Sequence[str], statement: object
) -> dict[str, Any] | None:
    """The claims, of these names, of a statement that this user has signed, or None."""
    try:
        key = _read_key()
        signed = files.parse_json(str(statement or "null"))
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
) -> tuple[str, set[str]] | None:
    """Where the signature in `run.json` says that a run was made, and what else holds.

    Those are the claims that are true of the folder and of all recipes. None if it is
    invalid: for another recipe, another record of code, or another key.
    """
    claims = read_claims(_RUN, _CLAIMS, info.get("signature"))
    if claims is None:
        return None
    actual = [_make_claims(folder, each, info.get("code", {})) for each in recipes]
    true = {
        name for name in _CLAIMS if all(each[name] == claims[name] for each in actual)
    }
    return (claims["folder"], true) if {"recipe", "code"} <= true else None


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
    return is_below and is_own(full)


def is_trusted(trust: bool | None, *places: Path) -> bool:
    """Whether the user trusts files and folders: `trust`, or None for `rlcli trust`."""
    return all(map(is_remembered, places)) if trust is None else trust


def read_trusted() -> list[str]:
    """The folders that the user trusts, absolute and without links."""
    path = trusted_file()
    data = read_private(path)
    try:
        content = files.parse_json(data.decode()) if data else {"folders": []}
        folders = content["folders"]
        if all(isinstance(each, str) and os.path.isabs(each) for each in folders):
            return [*folders]
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    message = f"`{path}` is damaged: it is not a list of folders"
    raise RlcliError(message, "remove it, and trust your folders again")


def _write_trusted(folders: Sequence[str]) -> None:
    """Replaces the folders that the user trusts, in a file of the user alone."""
    text = files.to_json({"folders": sorted({*folders})}, indent=2) + "\n"
    _make_folder(trusted_file())
    with files.replacing(trusted_file()) as file:
        os.fchmod(file.fileno(), 0o600)  # before it has content
        file.write(text.encode())


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
    return json.dumps(files.parse_json(files.to_json(value)), sort_keys=True).encode()


def _read_key(*, create: bool = False) -> bytes:
    """The key of the user; b"" if there is none, and none is to be created."""
    path = key_file()
    key = read_private(path)
    if not key and create:
        create_private(path, secrets.token_bytes(_KEY_BYTES))
        key = read_private(path)  # perhaps of another process
    if key and len(key) != _KEY_BYTES:
        raise RlcliError(f"`{path}` is damaged", _REMOVE)
    return key


@resolves("folder")
def trust(folder: str | Path | None = None, *, forget: bool = False) -> list[Path]:
    """Trusts a folder from now on, and returns all folders that you trust.

    What is in such a folder, now or later, may import the code that it names, as with
    `--trust`: runs, policies, sweeps. rlcli keeps the folders in a file of yours,
    `trusted.json`, beside its other settings.

    Runs that your own rlcli has trained need it only after they were copied or changed.

    Args:
        folder: a folder of runs, or of a single one; without it nothing changes.
        forget: does not trust the folder any more.

    Raises:
        RlcliError: if there is no such folder, or others can write to it.
    """
    folders = read_trusted()
    if folder is not None:
        if not forget and not os.path.isdir(folder):
            raise RlcliError(f"there is no folder {quote(folder)}")
        full = os.path.realpath(folder)
        if forget:
            folders = _remove(folders, full, folder)
        elif not is_own(Path(full)):
            raise RlcliError(
                f"{quote(folder)} cannot be trusted: others can change it",
                "trust a folder that only you can write to, as well as those around "
                "it; `chmod go-w FOLDER` makes it one",
            )
        else:
            folders = sorted({*folders, full})
        _write_trusted(folders)
    return [Path(each) for each in folders]


def _remove(folders: list[str], full: str, folder: str | Path) -> list[str]:
    if full in folders:
        return [each for each in folders if each != full]
    around = [each for each in folders if Path(full).is_relative_to(each)]
    raise RlcliError(
        f"{quote(folder)} is not among the folders that you trust",
        f"it is in `{around[0]}`, which is" if around else "`rlcli trust` lists them",
    )
