"""App: answers the requests of the page, and refuses those of others.

A web page of someone else, open in the same browser, can send requests to a server on
this machine. It does not know the token, which is the first part of every path. It
cannot read answers, because no header allows that, also not under a name that it has
pointed to this machine, because such requests have another `Host`.
"""

import re
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from rlcli.errors import RlcliError
from rlcli.results.board.film_files import read_film
from rlcli.results.board.page_parts import PartMaker, Selection
from rlcli.results.board.run_index import RunIndex
from rlcli.results.report.page import render_page, to_plain
from rlcli.runs.files import to_json

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def make_app(index: RunIndex, token: str, port: int) -> Any:
    """The ASGI app that serves a board on a port, to those who know the token."""
    page = render_page(
        "rlcli board", {"board": {"folders": index.folders}}, is_live=True
    )
    parts = PartMaker(index)
    lock = threading.Lock()  # requests are answered by several threads

    def answer(make: Callable[[Request], Mapping[str, Any]]) -> Callable[..., Response]:
        def respond(request: Request) -> Response:
            try:
                with lock:
                    data = make(request)
            except RlcliError as error:
                data = {"error": error.message, "hint": error.hint}
            return Response(to_json(to_plain(data)), media_type="application/json")

        return respond

    def make_part(request: Request) -> Mapping[str, Any]:
        selection = Selection.parse(request.query_params)
        return parts.make(request.path_params["name"], selection)

    def send_film(request: Request) -> Response:
        query = request.query_params
        try:
            with lock:
                folder = index.find(query.get("run", ""))
            data, kind = read_film(folder, query.get("name", ""))
        except RlcliError as error:
            return Response(error.message, 404, media_type="text/plain")
        return Response(data, media_type=kind)

    routes = [
        Route("/", lambda request: HTMLResponse(page.html)),
        Route("/runs", answer(lambda request: parts.list_runs(*_changes(request)))),
        Route("/part/{name}", answer(make_part)),
        Route("/film", send_film),
    ]
    policy = f"{page.policy}; frame-ancestors 'none'"
    headers = {**_HEADERS, "Content-Security-Policy": policy}
    return _guard(Starlette(routes=routes), token, port, headers)


def _changes(request: Request) -> tuple[str, int, int]:
    query = request.query_params
    numbers = (query.get(name, "") for name in ("known", "studied"))
    known, studied = (int(n) if re.fullmatch(r"[0-9]{1,12}", n) else 0 for n in numbers)
    return query.get("filter", ""), known, studied


def _guard(app: Any, token: str, port: int, headers: Mapping[str, str]) -> Any:
    """The app behind its token; all answers get the headers."""
    secret = f"/{token}".encode()
    hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}
    extra = [(name.lower().encode(), text.encode()) for name, text in headers.items()]

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        path = scope["path"].encode("utf-8", "surrogateescape")
        if scope["method"] not in ("GET", "HEAD"):
            respond: Any = _refusal(405, "only GET is allowed")
        elif dict(scope["headers"]).get(b"host") not in hosts:
            respond = _refusal(421, "another host")
        elif not _knows(path, secret):
            respond = _refusal(403, "open the link that `rlcli board` has printed")
        else:
            below = scope["path"][len(token) + 1 :]
            scope = {**scope, "path": below, "raw_path": None, "root_path": ""}
            respond = app
        await respond(scope, receive, send_with_headers)

    return guarded


def _knows(path: bytes, secret: bytes) -> bool:
    """Whether a path begins with the token, in a time that does not tell how much."""
    begin = path[: len(secret)]
    return secrets.compare_digest(begin, secret) and path[len(secret) :][:1] == b"/"


def _refusal(status: int, reason: str) -> Response:
    return Response(reason, status, media_type="text/plain")
