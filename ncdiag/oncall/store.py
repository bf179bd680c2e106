"""What was run, in one small SQLite file. Every call opens the file anew, so that any thread may use it."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ncdiag import redact

_TABLE = """
create table if not exists runs (
    id integer primary key, fingerprint text not null, starts_at text not null, alert text not null, labels text not null,
    playbook text not null, nodes text not null, state text not null, queued_at real not null, started_at real,
    ended_at real, result text, exit integer, record text, delivery text, unique (fingerprint, starts_at))
"""
_SHORT = (
    "id, fingerprint, starts_at, alert, playbook, nodes, state, queued_at, started_at, ended_at, result, exit, delivery"
)


class Store:
    """States of a run: `queued`, `running`, `done`, `broken` (the walk gave no record), `interrupted` (by a restart)."""

    def __init__(self, path: Path, keep_s: float) -> None:
        self._path = path
        self._keep_s = keep_s
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        with self._open() as database:
            database.execute("pragma journal_mode = wal")
            database.execute(_TABLE)
            database.execute("update runs set state = 'interrupted' where state in ('queued', 'running')")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=10)) as database, database:
            database.row_factory = sqlite3.Row
            yield database

    def add(
        self, fingerprint: str, starts_at: str, alert: str, labels: dict[str, str], playbook: str, nodes: str
    ) -> int | None:
        """The number of the new run; None when this alert was run already, or a run of its fingerprint is not over."""
        labels = redact.environ(labels)
        now = time.time()
        with self._open() as database:
            database.execute(
                "delete from runs where queued_at < ? and state not in ('queued', 'running')", (now - self._keep_s,)
            )
            busy = database.execute(
                "select 1 from runs where fingerprint = ? and (starts_at = ? or state in ('queued', 'running'))",
                (fingerprint, starts_at),
            )
            if busy.fetchone():
                return None
            row = (fingerprint, starts_at, redact.text(alert), json.dumps(labels), playbook, nodes, "queued", now)
            cursor = database.execute(
                "insert or ignore into runs (fingerprint, starts_at, alert, labels, playbook, nodes, state, queued_at)"
                " values (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            return cursor.lastrowid if cursor.rowcount == 1 else None

    def remove(self, run: int) -> None:
        """Forgets a run that could not be queued, so that it may come again."""
        with self._open() as database:
            database.execute("delete from runs where id = ?", (run,))

    def update(self, run: int, **values: Any) -> None:
        """Sets columns of one run; their names come from the code only."""
        columns = ", ".join(f"{name} = ?" for name in values)
        with self._open() as database:
            database.execute(f"update runs set {columns} where id = ?", (*values.values(), run))

    def runs(self, limit: int = 100) -> list[dict[str, Any]]:
        """The newest runs without their records."""
        with self._open() as database:
            rows = database.execute(f"select {_SHORT} from runs order by id desc limit ?", (limit,)).fetchall()
        return [dict(row) for row in rows]

    def run(self, number: int) -> dict[str, Any] | None:
        """One run with labels and record, None when there is none."""
        with self._open() as database:
            row = database.execute("select * from runs where id = ?", (number,)).fetchone()
        if row is None:
            return None
        data = dict(row)
        data["labels"] = json.loads(data["labels"])
        data["record"] = json.loads(data["record"]) if data["record"] else None
        return data
