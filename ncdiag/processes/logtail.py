"""The log that a process writes to: where its descriptors 1 and 2 lead, and the last lines there."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ncdiag import redact
from ncdiag.host import Host, HostError
from ncdiag.processes import pipes

TAIL_BYTES = 256 << 10
HEAD_BYTES = 64 << 10
LINES = 60
LINE_LENGTH = 2000
_CONTAINER = re.compile(r"\b([0-9a-f]{64})\b")


@dataclass
class Log:
    """One log file; lines are masked, and cut after LINE_LENGTH characters."""

    source: str = ""
    head: list[str] = field(default_factory=list)
    """The first lines, where the file is longer than what `tail` holds."""
    tail: list[str] = field(default_factory=list)
    error: str | None = None
    """Why there is no log; None when there is one."""
    silent_s: float | None = None
    """Seconds since the file last grew, by its modification time."""


def find(host: Host, pid: int, relatives: Iterable[int] = ()) -> Log:
    """Log of `pid`: a regular file behind its stdout or stderr, or behind a pipe that one of `relatives` (tee, a shell) reads."""
    kinds = []
    for descriptor in (2, 1):
        try:
            target = host.link(f"/proc/{pid}/fd/{descriptor}")
        except HostError as error:
            return Log(error=f"its output cannot be followed ({error.reason})")
        if target.startswith("/") and not target.startswith("/dev/"):
            return _read(f"/proc/{pid}/fd/{descriptor}", target)
        if pipes.PIPE.match(target):
            for path, name in _behind_pipe(host, target, pid, relatives):
                return _read(path, name)
            kinds.append("a pipe")
        else:
            kinds.append(target)
    container = _container_log(host, pid)
    if container:
        return _read(container, container)
    return Log(
        error=f"it writes to {kinds[0]}, not to a file; save its output to a file, or give that file to ncdiag diagnose"
    )


def _behind_pipe(host: Host, pipe: str, pid: int, relatives: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Regular files that the reader of `pipe` writes, its own errors left out, as (path through its descriptor, name)."""
    for reader in relatives:
        if reader == pid:
            continue
        links = dict(_links(host, reader))
        if not any(
            target == pipe and pipes.mode(host, reader, number) == os.O_RDONLY for number, target in links.items()
        ):
            continue
        for number, target in links.items():
            regular = target.startswith("/") and not target.startswith("/dev/") and not target.endswith(" (deleted)")
            if number != "2" and regular and pipes.mode(host, reader, number) in pipes.WRITES:
                yield f"/proc/{reader}/fd/{number}", target


def _links(host: Host, pid: int) -> Iterator[tuple[str, str]]:
    try:
        names = host.list(f"/proc/{pid}/fd")
    except HostError:
        return
    for name in names[:256]:
        try:
            yield name, host.link(f"/proc/{pid}/fd/{name}")
        except HostError:
            continue


def _container_log(host: Host, pid: int) -> str | None:
    """Docker's log of the container, seen from the machine."""
    try:
        match = _CONTAINER.search(host.read(f"/proc/{pid}/cgroup"))
    except HostError:
        return None
    path = "/var/lib/docker/containers/{0}/{0}-json.log".format(match.group(1)) if match else ""
    return path if path and os.access(path, os.R_OK) else None


def _read(path: str, name: str) -> Log:
    """Head and tail of a regular file, opened only to read and without waiting."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        return Log(name, error=f"{name}: {error.strerror}")
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return Log(name, error=f"{name} is no regular file")
        start = max(facts.st_size - TAIL_BYTES, 0)
        tail = _lines(os.pread(descriptor, TAIL_BYTES, start))[1 if start else 0 :]
        head = _lines(os.pread(descriptor, min(HEAD_BYTES, start), 0)) if start else []
    except OSError as error:
        return Log(name, error=f"{name}: {error.strerror}")
    finally:
        os.close(descriptor)
    return Log(redact.text(name), head, tail, silent_s=round(max(time.time() - facts.st_mtime, 0.0), 1))


_KEY_END = re.compile(r"\A(?:(?!-----BEGIN )[\s\S])*?-----END [A-Z ]*PRIVATE KEY-----")


def _lines(raw: bytes) -> list[str]:
    """Masked lines; of a line that was rewritten with carriage returns the last state. A private key that the piece starts in goes too."""
    text = raw.decode("utf-8", "backslashreplace")
    text = redact.text(_KEY_END.sub(redact.MASK, text) if "PRIVATE KEY-----" in text else text)
    return [line.rstrip("\r").rpartition("\r")[2][:LINE_LENGTH] for line in text.split("\n") if line.strip()]


_OWNER = re.compile(
    r"^\((?P<name>[\w:.-]+)(?: rank=\d+)? pid=(?P<pid>\d+)(?:, ip=[^)]*)?\)|^\S+:(?P<nccl>\d+):\d+ \[\d+\] NCCL "
)


def own_lines(log: Log, pids: Iterable[int | None], shared: bool) -> list[str]:
    """The lines of a log that several processes write which are from one of `pids` (its pid here and in its container); all when not `shared`.

    vLLM marks lines `(Worker_TP0 pid=123)`, Ray `(RayWorkerProc pid=123, ip=…)`, NCCL `host:123:456 [0] NCCL`; a line without a mark belongs to the
    marked line before it only where that one is the process's own.
    """
    if not shared:
        return log.tail[-LINES:]
    wanted, mine, unmarked = {str(pid) for pid in pids if pid}, False, True
    kept: list[str] = []
    for line in log.tail:
        match = _OWNER.match(line)
        if match:
            unmarked = False
            mine = (match.group("pid") or match.group("nccl")) in wanted
        if mine:
            kept.append(line)
    return log.tail[-LINES:] if unmarked else kept[-LINES:]
