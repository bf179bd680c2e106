"""Without a process to look at: stages of a start from the log files that it writes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag.bringup.node import tail
from ncdiag.bringup.output import Output
from ncdiag.logs.model import speaker
from ncdiag.model import RankState
from ncdiag.processes import ranks

_NAME = re.compile(r"^\((?P<name>[A-Za-z][\w.-]*?)(?:_[A-Z]+\d\w*)? (?:rank=\d+ )?pid=\d+")
_ROLES = {
    "APIServer": "api-server",
    "ApiServer": "api-server",
    "EngineCore": "engine-core",
    "Worker": "worker",
    "VllmWorker": "worker",
    "VllmWorkerProcess": "worker",
    "RayWorkerProc": "ray-worker",
    "RayWorkerWrapper": "ray-worker",
}
CHUNK = 4 << 20


class Files:
    """Log files as an agent: each process that has a mark of its own in one of them is one state."""

    def __init__(self, paths: Sequence[str], output: Output) -> None:
        self._paths, self._output = list(paths), output
        self._read = dict.fromkeys(self._paths, 0)

    def look(self, full: bool, extra: Mapping[str, Any]) -> list[dict[str, Any]]:
        """One answer a file; `node` is its name."""
        return [self._of(path) for path in self._paths]

    def close(self) -> None:
        """Nothing to end."""

    def _of(self, path: str) -> dict[str, Any]:
        name = os.path.basename(path)
        try:
            with open(path, "rb") as file:
                file.seek(self._read[path])
                data = file.read(CHUNK)
                self._read[path] += len(data)
            silent_s = max(time.time() - os.stat(path).st_mtime, 0.0)
        except OSError as error:
            return {"node": name, "error": f"{path}: {error.strerror}"}
        if data:
            self._output.feed(False, data)
        lines = tail(path)
        return {
            "node": name,
            "states": [state.as_dict() for state in states(name, lines, round(silent_s, 1))],
            "logs": {},
            "notes": [],
        }


def states(name: str, lines: Sequence[str], silent_s: float) -> list[RankState]:
    """The processes that speak in `lines`; a log without marks is one process."""
    voices: dict[int, RankState] = {}
    current: RankState | None = None
    for line in lines:
        said = speaker(line)
        pid = int(said.get("pid", 0))
        if pid or current is None:
            current = voices.setdefault(
                pid,
                RankState(
                    pid,
                    str(said.get("node", name)),
                    _role(line),
                    rank=said.get("rank"),
                    title=name,
                    log_source=name,
                    silent_s=silent_s,
                ),
            )
        current.log_tail.append(line)
    for state in voices.values():
        if state.role in ("worker", "ray-worker"):
            ranks.from_log(state, state.log_tail)
    return list(voices.values())


def _role(line: str) -> str:
    match = _NAME.match(line)
    return _ROLES.get(match["name"].split("-")[0], "unknown") if match else "unknown"
