"""A running `ncdiag oncall` on loopback, as a program of its own, and requests to it."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-for-the-tests-only-0001"

SETTINGS = """
port: 0
token_file: {folder}/token
database: {folder}/runs.sqlite
queue: 2
workers: 1
limit_s: 30
max_body: 20000
client_s: 1
connections: 4
rules:
  - labels: {{alertname: DiskFull}}
    playbook: disk-full
  - labels: {{alertname: ShmFull, severity: page}}
    playbook: shm-too-small
"""


def alert(name: str = "ShmFull", number: int = 1, age_s: float = 0, **extra: Any) -> dict[str, Any]:
    """One firing alert as Alertmanager writes it."""
    began = datetime.now(timezone.utc) - timedelta(seconds=age_s)
    labels = {"alertname": name, "severity": "page", "instance": "192.0.2.7:9100"}
    return {
        "status": "firing",
        "labels": labels,
        "annotations": {},
        "startsAt": began.strftime("%Y-%m-%dT%H:%M:%S.123456789Z"),
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "",
        "fingerprint": f"{number:016x}",
        **extra,
    }


def webhook(*alerts: dict[str, Any]) -> bytes:
    """The body of one notification."""
    return json.dumps(
        {"version": "4", "groupKey": "{}", "status": "firing", "receiver": "r", "alerts": list(alerts)}
    ).encode()


class Server:
    """Starts it, waits for its port, keeps its log; `stop` ends it with SIGTERM."""

    def __init__(self, folder: Path, more: str = "") -> None:
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        config = folder / "oncall.yaml"
        config.write_text(SETTINGS.format(folder=folder) + more)
        command = [sys.executable, "-m", "ncdiag", "oncall", "--config", str(config)]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        match = re.search(r"port (\d+)", line)
        assert match, line + self.process.stderr.read()
        self.port = int(match.group(1))
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, ""))

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return "".join(self.lines)

    def said(self, text: str) -> bool:
        """Whether the log holds `text`, or soon does."""
        end = time.monotonic() + 3
        while text not in self.log and time.monotonic() < end:
            time.sleep(0.02)
        return text in self.log

    def stop(self) -> int:
        """Its exit code."""
        self.process.terminate()
        code = self.process.wait(15)
        self._reader.join(5)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def ask(
        self, method: str, path: str, body: bytes | None = None, token: str | None = TOKEN, **headers: str
    ) -> tuple[int, Any]:
        """Status and JSON of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            given = {"Authorization": f"Bearer {token}"} if token is not None else {}
            connection.request(method, path, body, {**given, **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def runs(self) -> list[dict[str, Any]]:
        """The rows of /runs."""
        status, data = self.ask("GET", "/runs")
        assert status == 200
        return list(data["runs"])

    def wait_for(self, count: int, state: str = "done", limit_s: float = 40) -> list[dict[str, Any]]:
        """The runs, once `count` of them are in `state`."""
        end = time.monotonic() + limit_s
        while True:
            runs = self.runs()
            if sum(run["state"] == state for run in runs) >= count:
                return runs
            assert time.monotonic() < end, f"{runs}\n{self.log}"
            time.sleep(0.1)
