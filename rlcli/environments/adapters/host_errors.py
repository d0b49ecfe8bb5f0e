"""Errors of host environments: what a user reads if one fails, or takes too long."""

import contextlib
import functools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gymnasium.error import DependencyNotInstalled

from rlcli.environments.adapters.conversion import InvalidOutputError
from rlcli.errors import RlcliError
from rlcli.quoting import printable
from rlcli.registry import plugins
from rlcli.registry.libraries import install_command


class StepTimeoutError(Exception):
    """A call of an environment exceeded its timeout."""


class Timeout:
    """A context that raises `StepTimeoutError` if it takes longer than `seconds`.

    In the main thread SIGALRM interrupts loops, sleeps and waiting. Code that does not
    return to Python, and code in other threads, is only checked afterwards, and so is
    all code if another handler of SIGALRM is installed.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.main_thread = threading.main_thread().ident
        self.uses_alarm = threading.get_ident() == self.main_thread and _install_alarm()

    def __enter__(self) -> None:
        self.start = time.perf_counter()
        if self.uses_alarm and threading.get_ident() == self.main_thread:
            signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *error: object) -> None:
        if self.uses_alarm and threading.get_ident() == self.main_thread:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if time.perf_counter() - self.start > self.seconds:
            raise StepTimeoutError


def with_timeout(function: Callable, seconds: float | None) -> Callable:
    """Makes a function raise `StepTimeoutError` after `seconds`; None: no limit."""
    if seconds is None:
        return function
    limit = Timeout(seconds)

    def call(*args: Any, **keywords: Any) -> Any:
        with limit:
            return function(*args, **keywords)

    return call


def _raise_timeout(*_: object) -> None:
    raise StepTimeoutError


def _install_alarm() -> bool:
    """Installs a handler of SIGALRM if there is none; returns whether it is ours.

    The handler stays installed: changing it at every step costs more than a step of
    CartPole.
    """
    if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
        signal.signal(signal.SIGALRM, _raise_timeout)
    return signal.getsignal(signal.SIGALRM) is _raise_timeout


class EnvironmentFailedError(Exception):
    """Environment `index` failed in `method`; `__cause__` is its error."""

    def __init__(self, index: int, method: str) -> None:
        super().__init__(f"environment {index} failed in `{method}`")
        self.index = index
        self.method = method


class WorkerDiedError(Exception):
    """The process of an environment has ended."""


class ExternalEnvironment(NamedTuple):
    """The description of an external environment, and its timeout."""

    name: str  # such as "environment `gymnasium/CartPole-v1`"
    install: str  # the extra or library with its dependencies, also for rendering
    timeout: float | None = None  # maximum seconds of a step
    # seed of an episode -> the numbers that it draws, by name; None: it draws none
    draw: Callable[[int], Mapping[str, float]] | None = None


def explain_error(
    external: ExternalEnvironment,
    name: str,
    method: str,
    error: BaseException,
    cause: str,
) -> RlcliError:
    """Converts an error of an environment; `name` says which one, and its step.

    `cause` is the likely cause of an exception.
    """
    if isinstance(error, InvalidOutputError):
        return RlcliError(
            f"{name}: `{method}` returned {error}",
            "an environment must return observations of its declared space, and "
            "numbers as rewards; use a wrapper to convert them",
        )
    if isinstance(error, StepTimeoutError):
        return RlcliError(
            f"{name}: `{method}` took longer than {external.timeout:g} s",
            "increase `timeout` under `environment:`",
        )
    hint = (
        "`train: {on_error: restart}` restarts environments that fail, but not again "
        "and again without a step"
    )
    if isinstance(error, WorkerDiedError):
        return RlcliError(f"{name}: {error} in `{method}`", hint)
    if isinstance(error, ImportError | DependencyNotInstalled):
        hint = install_command(external.install)
    elif "OpenGL" in str(error):
        hint = "set `MUJOCO_GL=egl` to render MuJoCo without a display"
    reason = plugins.reason(error)
    return RlcliError(f"{name} failed in `{method}`: {reason}{cause}", hint)


@contextlib.contextmanager
def library_errors(what: str, participle: str, hint: str) -> Iterator[None]:
    """Turns errors of a library into one line each: `what` cannot be `participle`."""
    try:
        yield
    except (MemoryError, RlcliError):  # `limit_building` explains the first
        raise
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        message = f"{what} cannot be {participle}: {plugins.reason(error)}"
        raise RlcliError(message, hint) from error


def close_all(environments: Iterable[Any]) -> None:
    """Closes all environments; then raises the first error of a `close`, if any."""
    errors: list[BaseException] = []
    for environment in environments:
        try:
            environment.close()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code
            errors.append(error)
    if errors:
        raise errors[0]


def close_or_warn(name: str, environment: Any) -> None:
    """Closes an environment; if `close` raises, with a warning, but only with one.

    It is no error, because the results are already known.
    """
    try:
        environment.close()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code
        _warn_once(f"{name} failed in `close`: {printable(plugins.reason(error))}")


@functools.cache
def _warn_once(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def original_error(error: BaseException) -> BaseException:
    """Returns the error of the environment itself, which a vector may wrap."""
    cause = error.__cause__
    return cause if isinstance(error, EnvironmentFailedError) and cause else error
