"""Without a process to look at: stages of a start from the log files that it writes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag.bringup.concluded import concluded
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
    """Log files as an agent: each process that has a mark of its own in one of them is one state. `output` only hears when something new came."""

    def __init__(self, paths: Sequence[str], output: Output) -> None:
        self._paths, self._output = list(dict.fromkeys(paths)), output
        bases = [os.path.basename(path) for path in self._paths]
        self._names = {
            path: base if bases.count(base) == 1 else path for path, base in zip(self._paths, bases, strict=True)
        }
        self._printed = {path: Output() for path in self._paths}
        self._read = dict.fromkeys(self._paths, 0)

    def look(self, full: bool, extra: Mapping[str, Any]) -> list[dict[str, Any]]:
        """One answer a file; `node` is its name, `concluded` what `concluded` says of it."""
        return [self._of(path) for path in self._paths]

    def close(self) -> None:
        """Nothing to end."""

    def _of(self, path: str) -> dict[str, Any]:
        name, printed = self._names[path], self._printed[path]
        try:
            self._read_on(path, printed)
            silent_s = max(time.time() - os.stat(path).st_mtime, 0.0)
        except OSError as error:
            return {"node": name, "error": f"{path}: {error.strerror}"}
        self._output.news_at = max(self._output.news_at, printed.news_at)
        lines = printed.lines
        return {
            "node": name,
            "states": [state.as_dict() for state in states(name, tail(path), round(silent_s, 1))],
            "logs": {name: lines} if lines else {},
            "concluded": concluded(lines, silent_s),
            "notes": [],
        }

    def _read_on(self, path: str, printed: Output) -> None:
        """All that was added; of a long log at first its beginning and its end. Raises OSError."""
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < self._read[path]:  # it was begun again
                self._read[path] = 0
            if size - self._read[path] > 2 * CHUNK:
                file.seek(self._read[path])
                printed.feed(False, file.read(CHUNK) + b"\n")
                file.seek(size - CHUNK)
                file.readline()
                self._read[path] = file.tell()
            file.seek(self._read[path])
            if data := file.read():
                printed.feed(False, data)
            self._read[path] += len(data)


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
    """By the mark that vLLM and Ray put in front; a mark of others is its own name."""
    match = _NAME.match(line)
    return _ROLES.get(match["name"].split("-")[0], match["name"]) if match else "engine"
