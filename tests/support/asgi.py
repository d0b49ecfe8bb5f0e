"""ASGI: sends a request to an app, without a server or a client library."""

import asyncio
import json
from typing import Any, NamedTuple
from urllib.parse import unquote


class Answer(NamedTuple):
    """The answer of an app."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


def request(app: Any, target: str, method: str = "GET", host: str = "") -> Answer:
    """The answer to a request of a path with its query."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", host.encode())] if host else [],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    pairs = [(name.decode(), text.decode()) for name, text in sent[0]["headers"]]
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(sent[0]["status"], dict(pairs), body)
