"""Offline: code of a library that must not contact a host while a recipe is built.

Some libraries download data when they make an environment. A recipe may come from
elsewhere, and says so nowhere.
"""

import contextlib
import functools
import ipaddress
import sys
import threading
from collections.abc import Iterator
from typing import Any

from rlcli.errors import RlcliError, quote

_current = threading.local()
_EVENTS = {"socket.connect": 1, "socket.sendto": 1, "socket.getaddrinfo": 0}


@contextlib.contextmanager
def contact_no_host(what: str) -> Iterator[None]:
    """Context in which this thread reaches no other machine; `what` names the reason.

    Python reports every connection to audit hooks before it is made. The hook raises an
    `RlcliError`. Sockets within this machine are allowed.
    """
    _install()
    before = getattr(_current, "what", "")
    _current.what = what
    try:
        yield
    finally:
        _current.what = before


@functools.cache
def _install() -> None:
    sys.addaudithook(_refuse)  # cannot be removed, so there is one


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS or not (what := getattr(_current, "what", "")):
        return
    address = arguments[_EVENTS[event]]
    if event != "socket.getaddrinfo":
        if not isinstance(address, tuple):
            return  # of a socket in the file system
        address = address[0]
    if not _is_this_machine(address):
        raise RlcliError(
            f"{what} would contact {quote(address)}: a recipe contacts no host",
            "let the library download its data first, in Python",
        )


def _is_this_machine(host: Any) -> bool:
    name = host.decode(errors="replace") if isinstance(host, bytes) else host
    if name in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
