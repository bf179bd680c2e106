"""The HTTP side: who may ask, how much, how slowly. Everything that is refused is logged with its reason."""

from __future__ import annotations

import hmac
import json
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import ValidationError

from ncdiag.oncall.alerts import Webhook, refusal, rule_for
from ncdiag.oncall.settings import Settings, SettingsError, read_token
from ncdiag.oncall.store import Store
from ncdiag.oncall.worker import Workers


class Refusal(Exception):
    """An HTTP status and one sentence."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Oncall(ThreadingHTTPServer):
    """The server with its store and workers. Raises SettingsError, OSError."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, settings: Settings, log: Callable[[str], None]) -> None:
        self.settings = settings
        self.token = read_token(settings.token_file) if settings.token_file else None
        self.tls = _tls(settings)
        self.log = lambda line: log(re.sub(r"[^\x20-\x7e\u00a0-\uffff]", "?", line))
        self.slots = threading.BoundedSemaphore(settings.connections)
        self.store = Store(settings.database, 2 * settings.max_age_s)
        self.workers = Workers(settings, self.store, self.log)
        if ":" in settings.listen:
            self.address_family = socket.AF_INET6
        super().__init__((settings.listen, settings.port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for each connection, up to the limit; the ones above it are closed at once."""
        if not self.slots.acquire(blocking=False):
            self.log(f"refused {client_address[0]}: {self.settings.connections} connections are open")
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Gives the slot back whatever happens."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.slots.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Ends the connection when its time is over, however slowly the client sends; the TLS hand-shake counts."""
        request.settimeout(self.settings.client_s)
        if self.tls is not None:
            request = self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        timer = threading.Timer(self.settings.client_s, self._time_is_over, (request, client_address))
        timer.daemon = True
        timer.start()
        try:
            if isinstance(request, ssl.SSLSocket):
                request.do_handshake()
            super().finish_request(request, client_address)
        finally:
            timer.cancel()
            if isinstance(request, ssl.SSLSocket):
                request.close()

    def _time_is_over(self, request: socket.socket, client_address: Any) -> None:
        self.log(f"refused {client_address[0]}: no whole request within {self.settings.client_s:g} s")
        try:
            request.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A broken connection or hand-shake is a line in the log, not a traceback."""
        error = sys.exc_info()[1]
        self.log(f"refused {client_address[0]}: {type(error).__name__}: {error}")


class Handler(BaseHTTPRequestHandler):
    """One request a connection."""

    server: Oncall
    protocol_version = "HTTP/1.0"
    server_version = "ncdiag"
    sys_version = ""

    def do_GET(self) -> None:
        """`/healthz` for anybody; `/runs` and `/runs/N` for those who may."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """`/alerts`: Alertmanager's webhook."""
        self._answer(self._post)

    def _answer(self, work: Callable[[], tuple[int, Any]]) -> None:
        try:
            status, data = work()
        except Refusal as why:
            status, data = why.status, {"error": str(why)}
            self.server.log(f"refused {self.client_address[0]} {self.command} {self.path[:100]}: {why}")
        except Exception as error:  # a full disk below the list of runs: Alertmanager comes again on 503
            status, data = 503, {"error": f"cannot be done now: {type(error).__name__}"}
            self.server.log(f"cannot answer {self.command} {self.path[:100]}: {type(error).__name__}: {error}")
        body = json.dumps(data).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def _get(self) -> tuple[int, Any]:
        if self.path == "/healthz":
            return 200, {"status": "ok"}
        self._check_token()
        if self.path == "/runs":
            return 200, {"schema": 1, "runs": self.server.store.runs()}
        match = re.fullmatch(r"/runs/(\d{1,12})", self.path)
        run = self.server.store.run(int(match.group(1))) if match else None
        if run is None:
            raise Refusal(404, "there is nothing here; see /runs")
        return 200, run

    def _post(self) -> tuple[int, Any]:
        self._check_token()
        if self.path != "/alerts":
            raise Refusal(404, "post to /alerts")
        try:
            webhook = Webhook.model_validate(json.loads(self._body()))
        except ValidationError as error:
            first = error.errors()[0]
            raise Refusal(
                400, f"no webhook of Alertmanager: {'.'.join(map(str, first['loc']))}: {first['msg']}"
            ) from None
        except (ValueError, RecursionError):
            raise Refusal(400, "the body is no JSON") from None
        answers = [self._take(alert) for alert in webhook.alerts]
        full = any(answer == "the queue is full" for answer in answers)
        return (503 if full else 200), {"alerts": answers}

    def _take(self, alert: Any) -> str:
        """What becomes of one alert, in one sentence."""
        server, where = self.server, f"{alert.name} {alert.fingerprint}"
        if alert.status != "firing":
            return "resolved, nothing to run"
        why = refusal(alert, server.settings)
        rule = rule_for(alert, server.settings)
        if why is None and rule is None:
            why = "no rule fits its labels"
        if why is not None or rule is None:
            server.log(f"not run: {where}: {why}")
            return f"not run: {why}"
        run = server.store.add(alert.fingerprint, alert.startsAt, alert.name, alert.labels, *rule)
        if run is None:
            server.log(f"not run: {where}: known already")
            return "not run: known already"
        if not server.workers.submit(run):
            server.store.remove(run)
            server.log(f"not run: {where}: the queue is full")
            return "the queue is full"
        return f"run {run}"

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal() and len(length) < 20) or self.headers.get("Transfer-Encoding"):
            raise Refusal(411, "send Content-Length, and no Transfer-Encoding")
        if int(length) > self.server.settings.max_body:
            raise Refusal(413, f"a body of {length} bytes; at most {self.server.settings.max_body} are taken")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise Refusal(400, "the body ended early")
        return body

    def _check_token(self) -> None:
        token = self.server.token
        if token is None:
            return
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
        if kind.lower() != "bearer" or not same:
            time.sleep(0.2)
            raise Refusal(401, "wrong or missing token")

    def log_message(self, format: str, *arguments: Any) -> None:
        """The server's own log says what matters."""


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls.certificate, settings.tls.key)
        if settings.tls.client_ca is not None:
            context.load_verify_locations(settings.tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        raise SettingsError(f"cannot use the certificates: {error}") from None
    return context
