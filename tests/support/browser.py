"""Browser: a headless Chromium, driven by the Chrome DevTools Protocol over a pipe.

It needs no package: messages are JSON that ends with a zero byte, on the file
descriptors 3 and 4 of the browser.
"""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
    *("--single-process", "--no-zygote", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--force-color-profile=srgb"),
)
_PATIENCE = 60.0  # seconds
# Gives the pipes their numbers in the new process: after a fork JAX warns.
_START = """
import os, sys
first, second = (os.dup(os.dup(os.dup(int(number)))) for number in sys.argv[1:3])
os.dup2(first, 3)
os.dup2(second, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """The path of a Chromium, from RLCLI_CHROMIUM or from PATH."""
    named = os.environ.get("RLCLI_CHROMIUM")
    return named or next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """One page of a browser; `messages` are those of its console, `requests` URLs."""

    def __init__(self, program: str, profile: Path) -> None:
        self._numbers = itertools.count(1)
        self._events: list[dict] = []
        self._data = b""
        ours_in, theirs_out = os.pipe()
        theirs_in, self._out = os.pipe()
        self._in = ours_in

        pipes = (theirs_in, theirs_out)
        page = f"--user-data-dir={profile}", "about:blank"
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *map(str, pipes), program, *_FLAGS, *page],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=pipes,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        targets = self._call("Target.getTargets", session=False)["targetInfos"]
        (page,) = (each for each in targets if each["type"] == "page")
        found = self._call(
            "Target.attachToTarget",
            session=False,
            targetId=page["targetId"],
            flatten=True,
        )
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def open(self, page: Path | str, width: int = 1280, height: int = 900) -> None:
        """Opens a file or an address, and waits until it has loaded."""
        self.set_size(width, height)
        seen = len(self._events)
        url = page if isinstance(page, str) else page.absolute().as_uri()
        self._call("Page.navigate", url="about:blank")  # else only a fragment changes
        self._wait_for("Page.loadEventFired", seen)
        seen = len(self._events)
        self._call("Page.navigate", url=url)
        self._wait_for("Page.loadEventFired", seen)

    def set_size(self, width: int, height: int, scale: float = 1) -> None:
        """Sets the size of the window."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale}
        self._call("Emulation.setDeviceMetricsOverride", **size, mobile=False)

    def set_media(self, medium: str = "", **features: str) -> None:
        """Emulates a medium such as `print`, and features of media queries."""
        pairs = [
            {"name": name.replace("_", "-"), "value": value}
            for name, value in features.items()
        ]
        self._call("Emulation.setEmulatedMedia", media=medium, features=pairs)

    def evaluate(self, program: str) -> object:
        """The value of a JavaScript expression; a promise is awaited."""
        found = self._call(
            "Runtime.evaluate",
            expression=program,
            awaitPromise=True,
            returnByValue=True,
        )
        if "exceptionDetails" in found:
            raise AssertionError(json.dumps(found["exceptionDetails"]))
        return found["result"].get("value")

    def wait_until(self, program: str) -> None:
        """Waits until a JavaScript expression is true."""
        end = time.monotonic() + _PATIENCE
        while not self.evaluate(f"Boolean({program})"):
            assert time.monotonic() < end, f"never true: {program}"
            time.sleep(0.05)

    def move_pointer(self, x: float, y: float) -> None:
        """Moves the pointer within the window."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, begin: float, end: float, y: float) -> None:
        """Drags the pointer from one x to another, with the left button."""
        for kind, x in (
            ("mousePressed", begin),
            ("mouseMoved", (begin + end) / 2),
            ("mouseMoved", end),
            ("mouseReleased", end),
        ):
            pressed = {"button": "left", "buttons": 1, "clickCount": 1}
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def press(self, key: str) -> None:
        """Presses and releases a key."""
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Writes a PNG of the window, or of the whole page."""
        found = self._call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=whole
        )
        path.write_bytes(base64.b64decode(found["data"]))

    def print_pdf(self, path: Path) -> None:
        """Writes the page as it is printed."""
        found = self._call("Page.printToPDF", printBackground=False)
        path.write_bytes(base64.b64decode(found["data"]))

    @property
    def problems(self) -> list[str]:
        """Errors and warnings of the console, and exceptions, so far."""
        self.evaluate("0")  # reads the events before it
        found = []
        for event in self._events:
            name, fields = event["method"], event["params"]
            if name == "Runtime.exceptionThrown":
                found.append(json.dumps(fields["exceptionDetails"]))
            elif name == "Log.entryAdded" and fields["entry"]["level"] != "verbose":
                found.append(fields["entry"]["text"])
            elif name == "Runtime.consoleAPICalled" and fields["type"] in (
                *("error", "warning", "assert"),
            ):
                found.append(json.dumps(fields["args"]))
        return found

    def clear(self) -> None:
        """Forgets all problems and requests."""
        self._events.clear()

    @property
    def requests(self) -> list[str]:
        """The URLs of all requests so far; those of `data:` are no requests."""
        self.evaluate("0")
        urls = (
            event["params"]["request"]["url"]
            for event in self._events
            if event["method"] == "Network.requestWillBeSent"
        )
        return [url for url in urls if not url.startswith(("data:", "about:"))]

    def _call(self, method: str, *, session: bool = True, **params: object) -> dict:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self._events.append(answer)

    def _wait_for(self, event: str, seen: int) -> None:
        while all(each["method"] != event for each in self._events[seen:]):
            self._events.append(self._read())

    def _read(self) -> dict:
        while b"\0" not in self._data:
            ready, _, _ = select.select([self._in], [], [], _PATIENCE)
            assert ready, "the browser does not answer"
            block = os.read(self._in, 2**20)
            assert block, "the browser has ended"
            self._data += block
        line, _, self._data = self._data.partition(b"\0")
        return json.loads(line)
