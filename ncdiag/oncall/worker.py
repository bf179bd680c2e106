"""Takes runs from a bounded queue, walks each playbook in a process of its own, stores and delivers the record."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ncdiag.oncall.delivery import deliver
from ncdiag.oncall.settings import Settings
from ncdiag.oncall.store import Store

MAX_RECORD = 16 << 20
GRACE_S = 30.0
"""Seconds after the limit of a walk until its process is ended."""


class Workers:
    """`submit` never waits: a full queue is the caller's answer to the sender."""

    def __init__(self, settings: Settings, store: Store, log: Callable[[str], None]) -> None:
        self._settings, self._store, self._log = settings, store, log
        self._queue: queue.Queue[int | None] = queue.Queue(settings.queue)
        self._threads = [
            threading.Thread(target=self._work, name=f"walk-{n}", daemon=True) for n in range(settings.workers)
        ]
        self._running: set[subprocess.Popen[bytes]] = set()

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, run: int) -> bool:
        """False when the queue is full."""
        try:
            self._queue.put_nowait(run)
        except queue.Full:
            return False
        return True

    def stop(self) -> None:
        """Ends running walks; what waits is `interrupted` at the next start."""
        for process in list(self._running):
            _end(process)

    def _work(self) -> None:
        while True:
            number = self._queue.get()
            if number is None:
                return
            try:
                self._walk(number)
            except Exception as error:
                self._log(f"run {number} broke: {type(error).__name__}: {error}")
                self._store.update(number, state="broken", ended_at=time.time(), result=str(error)[:500])

    def _walk(self, number: int) -> None:
        run = self._store.run(number)
        if run is None:
            return
        self._store.update(number, state="running", started_at=time.time())
        self._log(f"run {number}: playbook {run['playbook']} on {run['nodes']} for {run['alert']} {run['fingerprint']}")
        record, why = self._process(run)
        if record is None:
            self._log(f"run {number}: no record: {why}")
            self._store.update(number, state="broken", ended_at=time.time(), result=why)
            return
        self._store.update(
            number,
            state="done",
            ended_at=time.time(),
            result=record["result"],
            exit=record["exit"],
            record=json.dumps(record),
        )
        alert = {key: run[key] for key in ("alert", "fingerprint", "starts_at", "labels")}
        delivery = deliver({"run": number, "alert": alert, "record": record}, self._settings)
        self._store.update(number, delivery=delivery)
        self._log(f"run {number}: {record['result']}, {delivery}")

    def _process(self, run: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
        """The record of a dry run, or why there is none. Playbook and nodes come from the settings, never from the alert."""
        limit = self._settings.limit_s
        command = [sys.executable, "-m", "ncdiag", "-q", "playbook", "run", run["playbook"], "--nodes", run["nodes"]]
        command += ["--format", "json", "--limit", str(limit)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self._running.add(process)
        try:
            out, err = process.communicate(timeout=limit + GRACE_S)
        except subprocess.TimeoutExpired:
            _end(process)
            process.communicate()
            return None, f"it did not end within {limit + GRACE_S:g} s"
        finally:
            self._running.discard(process)
        try:
            record = json.loads(out[:MAX_RECORD])
            return (record, "") if isinstance(record, dict) else (None, "it wrote no record")
        except ValueError:
            return None, (err.decode("utf-8", "replace").strip() or f"it ended with {process.returncode}")[-500:]


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
