"""What a lab makes on this machine is written down first, so that it goes even when nobody is left who would remove it.

Each lab has a warden, this file as a program of its own: it waits for the end of a pipe that only the lab's process holds open (whatever ends
that process, SIGKILL too) and removes what is left. Where the warden was killed as well, `clean` does the same by the records. Only namespaces
with the recorded names, processes in them, and the recorded folder are touched.

Standard library only: the warden runs as `python -S -I remains.py RECORD`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

RECORDS = Path("/run/ncdiag-lab")
"""One JSON file a lab; root's, and gone with a restart like the namespaces."""
FOLDER = "ncdiag-lab-"
"""How the name of a lab's own folder begins."""
_PREFIX = re.compile(r"nc[0-9]+[a-z]")
_CGROUPS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
GRACE_S = 2.0
"""From SIGTERM to SIGKILL."""


@dataclass
class Record:
    """What one lab has made."""

    prefix: str
    """How its namespaces and links are called: `nc<pid>x`, then `sw` or a number."""
    folder: str
    owner: int
    """The process whose lab it is."""
    born: int
    """When that process was started, in clock ticks since boot: another process may get its pid."""
    hosts: dict[str, dict[str, str | int]] = field(default_factory=dict)
    """Host -> {"netns", "address", "holder": pid of the process that holds its name and mounts}."""
    title: str = ""
    """What it is for, where somebody may want to enter it; else empty."""

    @property
    def path(self) -> Path:
        return RECORDS / f"{self.prefix}.json"

    @property
    def owned(self) -> bool:
        """Whether its owner still lives."""
        return born(self.owner) == self.born

    def save(self) -> None:
        RECORDS.mkdir(mode=0o700, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self)))
        new.replace(self.path)


def born(pid: int) -> int | None:
    """Start of the process in clock ticks since boot (/proc/PID/stat, field 22); None when it is gone, or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
    except OSError:
        return None
    return None if len(fields) < 20 or fields[0] in (b"Z", b"X") else int(fields[19])


def read(path: Path) -> Record | None:
    """None for what is no record of a lab."""
    try:
        record = Record(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    named = _PREFIX.fullmatch(record.prefix) and Path(record.folder).name.startswith(FOLDER)
    return record if named and record.path == path else None


def records() -> list[Record]:
    """All that are written down, oldest first."""
    found = [record for path in RECORDS.glob("*.json") if (record := read(path))]
    return sorted(found, key=lambda record: record.born)


def free_prefix() -> str:
    """A name that no lab of this machine has; what a dead process of the same pid has left is removed."""
    for letter in "xyzuvw":
        prefix = f"nc{os.getpid()}{letter}"
        there = read(RECORDS / f"{prefix}.json")
        if there is not None and not there.owned:
            sweep(there)
            there = None
        if there is None:
            return prefix
    raise RuntimeError("one process cannot have more than six labs at a time")


def namespaces(prefix: str) -> list[str]:
    """The lab's own network namespaces, by exact name."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    names = [line.split()[0] for line in listed.splitlines() if line.split()]
    return [name for name in names if re.fullmatch(rf"{re.escape(prefix)}(sw|[0-9]+)", name)]


def _inside(names: list[str]) -> list[int]:
    pids: list[int] = []
    for name in names:
        argv = ["ip", "netns", "pids", name]
        pids += [int(pid) for pid in subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split()]
    return [pid for pid in pids if born(pid) is not None]


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)


def sweep(record: Record) -> int:
    """Ends every process in the lab's namespaces and removes these, its folder and the record; how many processes there were."""
    names = namespaces(record.prefix)
    first = _inside(names)
    _signal(first, signal.SIGTERM)
    began = time.monotonic()
    while (pids := _inside(names)) and time.monotonic() - began < GRACE_S + 10:
        if time.monotonic() - began > GRACE_S:
            _signal(pids, signal.SIGKILL)
        time.sleep(0.05)
    for name in names:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    _remove_cgroups()
    shutil.rmtree(record.folder, ignore_errors=True)
    record.path.unlink(missing_ok=True)
    return len(first)


def _remove_cgroups() -> None:
    """`ncdiag-lab-PID` of ranks that are no more; one that is in use cannot be removed."""
    for base in _CGROUPS:
        for path in base.glob(f"{FOLDER}*"):
            pid = path.name[len(FOLDER) :]
            if pid.isdecimal() and born(int(pid)) is None:
                with contextlib.suppress(OSError):
                    path.rmdir()


def clean() -> list[Record]:
    """Removes what labs have left whose owners are gone; what is in use stays."""
    left = [record for record in records() if not record.owned]
    for record in left:
        sweep(record)
    return left


class Warden:
    """The process that outlives its owner by a moment."""

    def __init__(self, record: Record) -> None:
        self._record = record
        record.save()
        argv = [sys.executable, "-S", "-I", __file__, str(record.path)]
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self, patience_s: float = 30.0) -> None:
        """Has it remove everything, and waits for that."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code:  # somebody has killed it
            sweep(self._record)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 64):
        pass
    record = read(Path(sys.argv[1]))
    if record is not None:
        sweep(record)


if __name__ == "__main__":
    main()
