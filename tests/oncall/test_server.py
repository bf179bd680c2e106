"""The webhook server: a good alert is answered by its playbook, everything else is refused, logged, and runs nothing."""

from __future__ import annotations

import json
import socket
import sqlite3
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.oncall.bench import TOKEN, Server, alert, webhook


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("oncall"))
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log


def test_an_alert_is_answered_by_its_playbook(server: Server) -> None:
    before = len(server.runs())
    status, data = server.ask("POST", "/alerts", webhook(alert(number=100)))
    assert (status, data["alerts"][0][:4]) == (200, "run ")
    run = server.wait_for(before + 1)[0]
    assert (run["playbook"], run["state"], run["alert"]) == ("shm-too-small", "done", "ShmFull")
    status, whole = server.ask("GET", f"/runs/{run['id']}")
    assert status == 200
    assert whole["record"]["command"] == "playbook"
    assert whole["record"]["applied"] is False, "the server never repairs"
    assert whole["labels"]["instance"] == "192.0.2.7:9100"


@pytest.mark.parametrize("token", [None, "", "x", TOKEN[:-1], TOKEN + "x", "ä" * 20])
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/alerts"), ("GET", "/runs"), ("GET", "/runs/1"), ("GET", "/nothing")]
)
def test_a_wrong_token_is_refused(server: Server, token: str | None, method: str, path: str) -> None:
    before = len(server.runs())
    try:
        status, data = server.ask(method, path, webhook(alert(number=200)) if method == "POST" else None, token)
    except UnicodeEncodeError:
        pytest.skip("the client cannot send it")
    assert (status, data) == (401, {"error": "wrong or missing token"})
    assert len(server.runs()) == before
    assert server.said("wrong or missing token")


def test_healthz_needs_no_token(server: Server) -> None:
    assert server.ask("GET", "/healthz", token=None) == (200, {"status": "ok"})


BODIES = {
    "no-json": b"{",
    "not-utf-8": b"\xff\xfe",
    "too-deep": b"[" * 19000,
    "a-list": b"[]",
    "no-version": b'{"alerts": []}',
    "another-version": b'{"version": "3", "alerts": []}',
    "a-fingerprint-path": webhook(alert(fingerprint="../../../../x")),
    "a-fingerprint-sql": webhook(alert(fingerprint="' or 1=1 --    ")),
    "labels-no-strings": webhook(alert(labels={"alertname": {"$ne": 1}})),
    "label-name": webhook(alert(labels={"alert name; touch x": "x"})),
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_is_no_webhook(server: Server, kind: str) -> None:
    before = len(server.runs())
    assert server.ask("POST", "/alerts", BODIES[kind])[0] == 400
    assert len(server.runs()) == before


def test_labels_are_data_whatever_they_say(server: Server, tmp_path: Path) -> None:
    """A label that looks like a command, a path or an option reaches no command line."""
    mark = tmp_path / "mark"
    nasty = {
        "alertname": "ShmFull",
        "severity": "page",
        "playbook": "../../etc/passwd",
        "nodes": f"local; touch {mark}",
        "instance": f"$(touch {mark})",
        "x": "--apply",
    }
    before = len(server.runs())
    server.ask("POST", "/alerts", webhook(alert(number=300, labels=nasty)))
    run = server.wait_for(before + 1)[0]
    assert (run["playbook"], run["nodes"]) == ("shm-too-small", "local")
    assert not mark.exists()


def test_labels_that_no_rule_fits(server: Server) -> None:
    before = len(server.runs())
    for labels in ({"alertname": "Other"}, {"alertname": "ShmFull"}, {}, {"alertname": "ShmFull", "severity": "Page"}):
        status, data = server.ask("POST", "/alerts", webhook(alert(number=301, labels=labels)))
        assert (status, data["alerts"]) == (200, ["not run: no rule fits its labels"])
    assert len(server.runs()) == before


def test_a_replay_is_run_once(server: Server) -> None:
    before = len(server.runs())
    body = webhook(alert(number=400))
    assert server.ask("POST", "/alerts", body)[1]["alerts"][0].startswith("run ")
    assert server.ask("POST", "/alerts", body)[1]["alerts"] == ["not run: known already"]
    server.wait_for(before + 1)
    assert server.ask("POST", "/alerts", body)[1]["alerts"] == ["not run: known already"]
    assert len(server.runs()) == before + 1
    assert server.said("known already")


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"age_s": 200000}, "a replay?"),
        ({"age_s": -4000}, "in the future"),
        ({"startsAt": "yesterday"}, "no time"),
        ({"startsAt": "2026-01-01T00:00:00"}, "no time"),
    ],
)
def test_a_time_that_cannot_be_now(server: Server, extra: dict[str, object], says: str) -> None:
    answer = server.ask("POST", "/alerts", webhook(alert(number=401, **extra)))[1]["alerts"][0]  # type: ignore[arg-type]
    assert says in answer
    assert server.said(says)


def test_resolved_runs_nothing(server: Server) -> None:
    before = len(server.runs())
    assert server.ask("POST", "/alerts", webhook(alert(number=402, status="resolved")))[1]["alerts"] == [
        "resolved, nothing to run"
    ]
    assert len(server.runs()) == before


def test_a_huge_body_is_refused_before_it_is_read(server: Server) -> None:
    assert server.ask("POST", "/alerts", b"x" * 20001)[0] == 413
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        client.sendall(
            f"POST /alerts HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 99999999999\r\n\r\n".encode()
        )
        assert b" 413 " in client.recv(100)
    assert server.said("at most 20000 are taken")


@pytest.mark.parametrize(
    "header",
    [
        "Transfer-Encoding: chunked",
        "Content-Length: -1",
        "Content-Length: 1e3",
        "Content-Length: " + "9" * 5000,
        "X: y",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
    ],
)
def test_a_body_without_an_honest_length(server: Server, header: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        client.sendall(f"POST /alerts HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n{header}\r\n\r\n0\r\n\r\n".encode())
        assert b" 411 " in client.recv(100)


@pytest.mark.parametrize(
    "start", [b"", b"POST /alerts HT", f"POST /alerts HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n".encode()]
)
def test_a_slow_client_is_cut_off_though_it_keeps_sending(server: Server, start: bytes) -> None:
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        client.sendall(start)
        try:
            while time.monotonic() - begin < 5:
                client.sendall(b"X")
                time.sleep(0.2)
        except OSError:
            pass
    assert time.monotonic() - begin < 3
    assert server.ask("GET", "/healthz")[0] == 200
    assert server.said("no whole request within 1 s")


def test_too_many_connections_are_closed_and_the_rest_served(server: Server) -> None:
    clients = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(6)]
    time.sleep(0.2)
    closed = 0
    for client in clients[4:]:
        try:
            closed += client.recv(1) == b""
        except OSError:
            closed += 1
    assert closed == 2
    for client in clients:
        client.close()
    time.sleep(0.3)
    assert server.ask("GET", "/healthz")[0] == 200
    assert server.said("4 connections are open")


@pytest.mark.parametrize(
    "path", ["/runs/../token", "/../token", "/runs/1;ls", "/runs/-1", "/runs/" + "9" * 30, "/runs?x"]
)
def test_a_path_outside(server: Server, path: str) -> None:
    status, data = server.ask("GET", path)
    assert status == 404
    assert TOKEN not in json.dumps(data)


def test_a_line_break_cannot_forge_a_log_line(server: Server) -> None:
    server.ask("POST", "/alerts", webhook(alert(number=500, labels={"alertname": "a\nlistening on evil\x1b[2J"})))
    assert server.said("a?listening on evil?[2J")


def test_a_full_queue_asks_to_come_again(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        many = [alert("DiskFull", number) for number in range(1, 9)]
        status, data = server.ask("POST", "/alerts", webhook(*many))
        assert status == 503
        assert data["alerts"].count("the queue is full") in (5, 6), "one at work, two wait"
        server.wait_for(2)
        status, data = server.ask("POST", "/alerts", webhook(*many[-2:]))
        assert data["alerts"][0].startswith("run "), "what did not fit was not remembered as run"
    finally:
        server.stop()


def test_one_run_of_a_fingerprint_at_a_time(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        answers = server.ask("POST", "/alerts", webhook(alert("DiskFull", 1, 60), alert("DiskFull", 1, 30)))[1][
            "alerts"
        ]
        assert answers == ["run 1", "not run: known already"]
    finally:
        server.stop()


def test_what_was_run_outlives_a_restart(tmp_path: Path) -> None:
    body = webhook(alert("ShmFull", 1))
    server = Server(tmp_path)
    server.ask("POST", "/alerts", body)
    server.wait_for(1)
    server.stop()
    server = Server(tmp_path)
    try:
        assert server.runs()[0]["state"] == "done"
        assert server.ask("POST", "/alerts", body)[1]["alerts"] == ["not run: known already"]
        assert (tmp_path / "runs.sqlite").stat().st_mode & 0o077 == 0
    finally:
        server.stop()


def test_a_list_of_runs_that_cannot_be_written_is_answered(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        with closing(sqlite3.connect(tmp_path / "runs.sqlite")) as database:
            database.execute("drop table runs")
        status, data = server.ask("POST", "/alerts", webhook(alert("ShmFull", 7)))
        assert status == 503 and "cannot be done now" in data["error"] and server.said("OperationalError")
        assert server.ask("GET", "/healthz")[0] == 200
    finally:
        server.stop()


GOT: list[tuple[str, dict[str, Any]]] = []


class _Inbox(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        GOT.append((self.headers["Authorization"], json.loads(body)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_the_record_is_posted_and_given_to_a_hook(tmp_path: Path) -> None:
    inbox = HTTPServer(("127.0.0.1", 0), _Inbox)
    GOT.clear()
    thread = threading.Thread(target=inbox.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    hooked = tmp_path / "hooked file;touch x"
    more = f"post: {{url: 'http://127.0.0.1:{inbox.server_port}/in', token_file: {tmp_path}/token}}\nhook: [/usr/bin/tee, '{hooked}']\n"
    server = Server(tmp_path, more)
    try:
        server.ask("POST", "/alerts", webhook(alert("ShmFull", 1)))
        deadline = time.monotonic() + 30
        while not (run := server.runs()[0])["delivery"]:
            assert time.monotonic() < deadline, server.log
            time.sleep(0.1)
        assert run["delivery"] == "posted (204); hook ended with 0"
        authorization, data = GOT[0]
        assert authorization == f"Bearer {TOKEN}"
        assert data["record"]["playbook"] == "shm-too-small"
        assert json.loads(hooked.read_text()) == data
    finally:
        server.stop()
        inbox.shutdown()
        thread.join()
        inbox.server_close()


def _certificate(folder: Path, name: str, issuer: str | None = None) -> None:
    subject = [
        "-subj",
        f"/CN={name}",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-days",
        "2",
        "-nodes",
        "-newkey",
        "rsa:2048",
    ]
    sign = ["-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key"] if issuer else []
    subprocess.run(
        ["openssl", "req", "-x509", *subject, *sign, "-keyout", f"{name}.key", "-out", f"{name}.pem"],
        cwd=folder,
        check=True,
        capture_output=True,
    )


def test_mutual_tls(tmp_path: Path) -> None:
    try:
        _certificate(tmp_path, "ca")
        _certificate(tmp_path, "server", "ca")
        _certificate(tmp_path, "client", "ca")
        _certificate(tmp_path, "stranger")
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"openssl 3 is not here: {error}")
    more = f"tls: {{certificate: {tmp_path}/server.pem, key: {tmp_path}/server.key, client_ca: {tmp_path}/ca.pem}}\n"
    server = Server(tmp_path, more)

    def ask(who: str | None) -> bytes:
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        if who:
            context.load_cert_chain(tmp_path / f"{who}.pem", tmp_path / f"{who}.key")
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=5)
        with raw, context.wrap_socket(raw, server_hostname="127.0.0.1") as client:
            client.sendall(f"GET /runs HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
            return client.recv(1000)

    try:
        assert b" 200 " in ask("client")
        for who in (None, "stranger"):
            with pytest.raises(OSError):
                assert not ask(who)
                raise OSError("closed without an answer")
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain:
            begin = time.monotonic()
            assert plain.recv(10) == b"", "a client that never shakes hands is cut off"
            assert time.monotonic() - begin < 3
        assert b" 200 " in ask("client")
    finally:
        server.stop()
    assert server.said("refused 127.0.0.1")
