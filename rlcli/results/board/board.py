"""Board: a local web page about runs; the function behind `rlcli board`."""

import contextlib
import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlcli.errors import RlcliError
from rlcli.registry.libraries import import_library, require_extra
from rlcli.registry.paths import resolves

HOST = "127.0.0.1"


@resolves("runs")
def board(
    runs: str | Path | Sequence[str | Path] = "runs",
    *,
    port: int = 0,
    show_link: Callable[[str], None] = print,
) -> None:
    """Serves a web page about runs and studies, live while they train, until Ctrl-C.

    The page has a table of the runs, the cells of studies, and for the selected runs
    the results, curves, metrics and recipes of `rlcli.report`, and their films. It only
    reads the files: runs do not notice. Only this machine can reach it, and only with
    the token in its link. Requires the extra `board`.

    Args:
        runs: folders with runs, or run folders. Links in them are not followed.
        port: the port to listen on; by default a free one.
        show_link: called with the link of the page when the server is ready.
    """
    require_extra("board", "a board")
    folders = [runs] if isinstance(runs, str | Path) else [*runs]
    from rlcli.results.board.app import make_app  # here: imports NumPy and Starlette
    from rlcli.results.board.run_index import RunIndex

    index = RunIndex([Path(folder) for folder in folders])
    token = secrets.token_urlsafe(24)
    with _listen(port) as listener:
        number = listener.getsockname()[1]
        app = make_app(index, token, number)
        show_link(f"http://{HOST}:{number}/{token}/")
        with contextlib.suppress(KeyboardInterrupt):
            _serve(app, listener)


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RlcliError(
            f"port {port} of {HOST} cannot be used: {reason}",
            "choose another with `--port`, or leave it out",
        ) from error


def _serve(app: Any, listener: socket.socket) -> None:
    uvicorn: Any = import_library("uvicorn", "board")
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        http="h11",
        limit_concurrency=64,
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[listener])
