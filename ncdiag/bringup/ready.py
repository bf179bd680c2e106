"""Is the server up: /health, then one small completion with the model's served name."""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from typing import Any

HEALTH_EVERY_S = 0.5
HEALTH_S = 3.0
REQUEST_S = 120.0
"""The first request may compile kernels."""
BODY_LIMIT = 1 << 20


@dataclass
class Check:
    """What the request check found. Times in seconds."""

    url: str = ""
    healthy: bool = False
    model: str = ""
    """The name that the server goes by (`/v1/models`)."""
    latency_s: float | None = None
    """Of the completion; None where there was none."""
    completion_tokens: int | None = None
    error: str = ""
    """Why the completion failed; empty when it worked or was not tried yet."""
    asked: bool = False
    by_health: bool = False
    """Whether /health alone counts, and no completion is tried."""

    @property
    def done(self) -> bool:
        """Whether there is a result, good or bad."""
        return self.latency_s is not None or bool(self.error) or (self.by_health and self.healthy)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Asker:
    """Asks in a thread of its own, so that the watch goes on while the first request hangs."""

    def __init__(
        self, url: str, api_key: str | None, model: str | None, timeout_s: float = REQUEST_S, *, by_health: bool = False
    ) -> None:
        self.check = Check(url, by_health=by_health)
        self._key, self._model, self._timeout_s = api_key, model, timeout_s
        self._stop = threading.Event()
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = (
            False,
            ssl.CERT_NONE,
        )  # its own server, often with a certificate of its own
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._ask("/health", None, HEALTH_S)
                break
            except (OSError, ValueError):
                self._stop.wait(HEALTH_EVERY_S)
        else:
            return
        self.check.healthy = True
        if self.check.by_health:
            return
        try:
            self._complete()
        except urllib.error.HTTPError as error:
            body = error.read(2000).decode("utf-8", "replace")
            self.check.error = f"HTTP {error.code} for {error.url}: {_message(body)}"
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            self.check.error = f"no answer to a completion: {getattr(error, 'reason', None) or error}"

    def _complete(self) -> None:
        models = self._ask("/v1/models", None, 10)
        names = [entry["id"] for entry in models["data"]]
        self.check.model = self._model if self._model and self._model in names else names[0]
        self.check.asked = True
        started = time.monotonic()
        answer = self._ask(
            "/v1/completions",
            {"model": self.check.model, "prompt": "Hello", "max_tokens": 4, "temperature": 0},
            self._timeout_s,
        )
        self.check.completion_tokens = (answer.get("usage") or {}).get("completion_tokens")
        if not answer.get("choices"):
            raise ValueError("its answer holds no choices")
        self.check.latency_s = round(time.monotonic() - started, 3)

    def _ask(self, path: str, body: dict[str, Any] | None, timeout_s: float) -> Any:
        request = urllib.request.Request(
            self.check.url + path,
            json.dumps(body).encode() if body is not None else None,
            {"Content-Type": "application/json"},
        )
        if self._key:
            request.add_header("Authorization", f"Bearer {self._key}")
        with self._opener.open(request, timeout=timeout_s) as reply:
            content = reply.read(BODY_LIMIT)
        return json.loads(content) if path != "/health" else None


def _message(body: str) -> str:
    try:
        data = json.loads(body)
        return str((data.get("error") or {}).get("message") or data.get("message") or body)[:300]
    except (ValueError, AttributeError):
        return body[:300]
