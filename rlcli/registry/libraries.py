"""Libraries that are optional or slow to import, imported only where they are used.

Some download data when they make an environment. A recipe may come from elsewhere, and
says so nowhere: while one is built, their code contacts no host.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import ipaddress
import sys
import threading
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from rlcli.errors import RlcliError, quote


class Extra(NamedTuple):
    """An extra of rlcli: the modules that it installs, and what they are for."""

    modules: tuple[str, ...]
    purpose: str


EXTRAS: Mapping[str, Extra] = {  # in the order of pyproject.toml
    "gymnasium": Extra(("pygame",), "rendering of Gymnasium's environments"),
    "plot": Extra(("matplotlib",), "figures of learning curves"),
    "report": Extra(("vl_convert",), "pages with charts about runs"),
    "board": Extra(("starlette", "uvicorn", "vl_convert"), "`rlcli board`"),
    "mp4": Extra(("av",), "videos as mp4"),
    "atari": Extra(("ale_py", "cv2"), "environments `gymnasium/ALE/…`"),
    "mujoco": Extra(("mujoco",), "Gymnasium's MuJoCo environments"),
    "robotics": Extra(("gymnasium_robotics", "mujoco"), "goals of Gymnasium-Robotics"),
    "minigrid": Extra(("minigrid",), "environments `gymnasium/minigrid:…`"),
    "box2d": Extra(("Box2D",), "Gymnasium's Box2D environments"),
    "envpool": Extra(("envpool",), "environments `envpool/…`"),
    "gymnax": Extra(("gymnax", "six"), "environments `gymnax/…`"),
    "pgx": Extra(("pgx",), "environments `pgx/…`"),
    "pettingzoo": Extra(("pettingzoo", "mpe2"), "environments `pettingzoo/…`"),
    "playground": Extra(("mujoco_playground",), "environments `playground/…`"),
    "brax": Extra(("brax",), "environments `brax/…`"),
    "jaxmarl": Extra(("jaxmarl",), "environments `jaxmarl/…`"),
    "craftax": Extra(("craftax",), "environments `craftax/…`"),
    "jumanji": Extra(("jumanji",), "environments `jumanji/…`"),
    "navix": Extra(("navix",), "environments `navix/…`"),
    "xminigrid": Extra(("xminigrid",), "environments `xminigrid/…`"),
    "evolution": Extra(("evosax",), "updaters `open_es`, `cma_es`, `simple_ga`"),
    "muzero": Extra(("mctx",), "updater `muzero`"),
    "minari": Extra(("minari", "h5py"), "replay `dataset` with `minari`"),
    "tensorboard": Extra(("tensorboardX",), "tracker `tensorboard`"),
    "wandb": Extra(("wandb",), "tracker `wandb`"),
    "mlflow": Extra(("mlflow", "sqlalchemy", "alembic"), "tracker `mlflow`"),
    "sweep": Extra(("optuna", "cmaes"), "`rlcli sweep`"),
    "ray": Extra(("ray",), "`rlcli sweep --engine ray`"),
    "storage": Extra(("fsspec",), "`rlcli sweep --run-storage`"),
    "onnx": Extra(("onnx",), "`rlcli export --format onnx`"),
    "stablehlo": Extra(("flatbuffers",), "`rlcli export --format stablehlo`"),
    "cuda12": Extra(("jax_cuda12_plugin",), "NVIDIA GPUs, with CUDA 12"),
    "cuda13": Extra(("jax_cuda13_plugin",), "NVIDIA GPUs, with CUDA 13"),
    "tpu": Extra(("libtpu",), "Google TPUs"),
}


def install_command(library: str) -> str:
    """The command that installs an extra of rlcli, or another library.

    It names the requirements of the extra, which can be installed wherever rlcli itself
    came from.
    """
    requirements = _requirements(library) if library in EXTRAS else [library]
    return "pip install " + " ".join(f'"{name}"' for name in requirements)


def missing_modules(extra: str) -> list[str]:
    """The modules of an extra that are not installed; imports none."""
    return [
        module
        for module in EXTRAS[extra].modules
        if importlib.util.find_spec(module) is None
    ]


def require_extra(extra: str, purpose: str) -> None:
    """Raises an error if an extra is not installed; `purpose` begins the message."""
    if missing := missing_modules(extra):
        names = ", ".join(f"`{name}`" for name in missing)
        raise RlcliError(
            f"{purpose} requires {names}: not installed", install_command(extra)
        )


def import_library(name: str, library: str) -> ModuleType:
    """Imports a module; an error says how to install its extra, or its library."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RlcliError(
            f"`{name}` cannot be imported: {error}", install_command(library)
        ) from error


def _requirements(extra: str) -> list[str]:
    """The requirements of an extra, from the metadata of the installed rlcli."""
    try:
        entries = importlib.metadata.requires("rlcli") or []
    except importlib.metadata.PackageNotFoundError:  # run from its source
        entries = []
    found = [
        requirement.strip()
        for requirement, _, marker in (entry.partition(";") for entry in entries)
        if f"'{extra}'" in marker or f'"{extra}"' in marker
    ]
    return found or [f".[{extra}]"]


_current = threading.local()
_add_hook = functools.cache(sys.addaudithook)
_EVENTS = {"socket.connect": 1, "socket.sendto": 1, "socket.getaddrinfo": 0}


@contextlib.contextmanager
def contact_no_host(what: str) -> Iterator[None]:
    """Context in which this thread reaches no other machine; `what` names the reason.

    Python reports every connection to audit hooks before it is made. The hook raises an
    `RlcliError`. Sockets within this machine are allowed.
    """
    _add_hook(_refuse)  # cannot be removed, so there is one
    before = getattr(_current, "what", "")
    _current.what = what
    try:
        yield
    finally:
        _current.what = before


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS or not (what := getattr(_current, "what", "")):
        return
    address = arguments[_EVENTS[event]]
    if event != "socket.getaddrinfo":
        if not isinstance(address, tuple):
            return  # of a socket in the file system
        address = address[0]
    if not _is_this_machine(address):
        message = f"{what} would contact {quote(address)}: a recipe contacts no host"
        raise RlcliError(message, "let the library download its data first, in Python")


def _is_this_machine(host: Any) -> bool:
    name = host.decode(errors="replace") if isinstance(host, bytes) else host
    if name in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
