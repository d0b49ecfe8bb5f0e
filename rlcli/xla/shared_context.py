"""Shared context: changes a setting of the process while any of its threads needs it.

Imports no other module of rlcli.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager


def share_context(
    make_context: Callable[[], AbstractContextManager[None]],
) -> Callable[[], AbstractContextManager[None]]:
    """Decorator of a context that changes a setting, and restores it at its end.

    Contexts of several threads end in any order. If each one restored what it had
    found, the last one could restore the setting of another. So the first one enters,
    and the last one leaves.
    """
    lock, stack, users = threading.Lock(), contextlib.ExitStack(), 0

    @contextlib.contextmanager
    def enter() -> Iterator[None]:
        nonlocal users
        with lock:
            if users == 0:
                stack.enter_context(make_context())
            users += 1
        try:
            yield
        finally:
            with lock:
                users -= 1
                if users == 0:
                    stack.close()

    enter.__doc__ = make_context.__doc__
    return enter
