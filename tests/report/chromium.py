"""A real browser, driven over the DevTools protocol on a pair of pipes: no port, no further library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
ANSWER_S = 60.0


class Browser:
    """One tab. Console messages, page errors and requests are kept in `messages` and `requests`."""

    def __init__(self, profile: Path) -> None:
        assert PROGRAM
        self.messages: list[str] = []
        self.requests: list[str] = []
        self._number, self._session, self._buffer = 0, "", b""
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # the browser reads its descriptor 3 and writes its descriptor 4
        redirect = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", redirect, PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)

    def __enter__(self) -> Browser:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._write)
        os.close(self._read)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One call. Raises RuntimeError with the browser's words."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        raw = json.dumps(message).encode() + b"\0"
        while raw:
            raw = raw[os.write(self._write, raw) :]
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
        raise RuntimeError(f"{method}: no answer within {ANSWER_S:g} s")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._read, 1 << 20)
            if not data:
                raise RuntimeError("the browser ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._keep(message)
        return message

    def _keep(self, message: dict[str, Any]) -> None:
        method, more = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(more["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(json.dumps(more["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(more["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.messages.append(f"{more['entry']['level']}: {more['entry']['text']}")
        elif method in ("Page.javascriptDialogOpening", "Page.windowOpen"):
            self.messages.append(f"{method}: {json.dumps(more)}")

    def size(self, width: int, height: int = 900, *, dark: bool = False, media: str = "", motion: bool = True) -> None:
        """What the page is shown on."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "no-preference" if motion else "reduce"},
        ]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def open(self, path: Path) -> None:
        """Loads a file and waits until everything is there."""
        self.ask("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + ANSWER_S
        while self.value("document.readyState + ' ' + location.protocol") != "complete file:":
            assert time.monotonic() < deadline, "the page does not load"
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """What an expression gives on the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page, however long."""
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self, path: Path) -> None:
        """As it comes out of the printer."""
        answer = self.ask(
            "Page.printToPDF", printBackground=True, preferCSSPageSize=True, paperWidth=8.27, paperHeight=11.69
        )
        path.write_bytes(base64.b64decode(answer["data"]))

    def key(self, name: str, code: int) -> None:
        """One key pressed and released."""
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code)
