"""The little hung programs, what is the matter with each, and how they are started and looked at."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
COME_S = 60.0
"""Seconds in which every rank has to come to its fault."""


@dataclass(frozen=True)
class Case:
    """One program with one fault, and the truth about it."""

    name: str
    program: str
    fault: str = ""
    world: int = 3
    causes: tuple[str, ...] = ("healthy", "slow-not-hung")
    """What may be concluded; the first one is best."""
    culprits: tuple[int, ...] = ()
    """Ranks that have to be named, no others."""
    some: bool = False
    """Naming some of `culprits` is enough."""
    stage: str | None = None
    """The culprit's stage."""
    started: tuple[int, ...] | None = None
    """Ranks that are started; all when None."""
    sizes: tuple[tuple[int, int], ...] = ()
    """Ranks that are told another world size."""
    said: str = ""
    """What the summary has to say."""
    torch: bool = True
    private: bool = False
    """Needs namespaces of its own (root): a name server that never answers."""


_OUT = ("rank-stuck-outside-collective",)
CASES = (
    Case("store-rank-missing", "store", causes=("rank-missing",), culprits=(2,), started=(0, 1)),
    Case("store-master-missing", "store", causes=("rank-missing",), culprits=(0,), started=(1, 2)),
    Case("store-world-size", "store", causes=("rank-layout-wrong",), sizes=((2, 4),)),
    Case("mesh-half", "mesh", causes=_OUT, culprits=(2,), stage="program"),
    Case("stopped", "outside", "stopped", causes=("rank-stopped",), culprits=(1,), stage="program"),
    Case("stopped-of-two", "outside", "stopped", world=2, causes=("rank-stopped",), culprits=(1,), stage="program"),
    Case("loop", "outside", "loop", causes=_OUT, culprits=(1,), stage="program"),
    Case("lock", "outside", "lock", causes=_OUT, culprits=(1,), stage="program"),
    Case("lock-of-two", "outside", "lock", world=2, causes=_OUT, culprits=(1,), stage="program"),
    Case("pipe", "outside", "pipe", causes=_OUT, culprits=(1,), stage="program"),
    Case("file", "outside", "fifo", causes=_OUT, culprits=(1,), stage="program"),
    Case("sleep", "outside", "sleep", causes=_OUT, culprits=(1,), stage="program"),
    Case("child", "outside", "child", causes=_OUT, culprits=(1,), stage="program"),
    Case(
        "store-dns",
        "store",
        causes=("dns-unresponsive",),
        culprits=(0, 1, 2),
        some=True,
        stage="rendezvous",
        private=True,
    ),
    Case("died-zombie", "died", causes=("rank-died",), culprits=(1,)),
    Case(
        "skipped", "collectives", "skipped", world=4, causes=("collective-desync",), culprits=(2,), stage="collective"
    ),
    Case("two-groups", "collectives", "two_groups", world=4, causes=("collective-desync",)),
    Case("two-groups-of-two", "collectives", "two_groups", world=2, causes=("collective-desync", "unresolved")),
    Case("receive-from-nobody", "collectives", "receive_from_nobody", world=2, causes=("collective-desync",)),
    Case("receive-in-a-ring", "collectives", "ring", causes=("collective-desync",)),
    Case("messages", "collectives", "messages", world=4, causes=("unresolved",)),
    Case("packs", "collectives", "packs", causes=_OUT, culprits=(1,), stage="program", said="Sleeper.__reduce__"),
    Case("slow-packing", "collectives", "slow_packing"),
    Case("naps", "collectives", "naps", causes=("unresolved",), said="all 3 ranks sleep (in their own code, naps"),
    Case("file-barrier", "collectives", "file_barrier", causes=_OUT, said="does not: look there first"),
    Case("store-key", "collectives", "key", causes=_OUT, culprits=(1,), stage="program"),
    Case("collective-in-threads", "collectives", "in_threads", causes=_OUT, culprits=(1,), stage="program"),
    Case("collective-in-asyncio", "collectives", "in_asyncio", causes=_OUT, culprits=(1,), stage="program"),
    Case("driver", "collectives", "driver", causes=("healthy",)),
    Case("healthy", "collectives", "healthy", world=4),
    Case("slow-read", "outside", "slow_read"),
    Case("slow-compile", "outside", "slow_compile"),
    Case("slow-growth", "outside", "slow_growth"),
    Case("plain-lock", "plain", "lock", causes=_OUT, culprits=(1,), stage="program", torch=False),
    Case("plain-pipe", "plain", "pipe", causes=_OUT, culprits=(1,), stage="program", torch=False),
    Case("plain-file", "plain", "fifo", causes=_OUT, culprits=(1,), stage="program", torch=False),
    Case("plain-loop", "plain", "loop", causes=_OUT, culprits=(1,), stage="program", torch=False),
    Case("plain-sleep", "plain", "sleep", causes=_OUT, culprits=(1,), stage="program", torch=False),
    Case(
        "plain-listens",
        "plain",
        "listens",
        causes=_OUT,
        culprits=(1,),
        said="waits for somebody to connect to 127.0.0.1:",
        torch=False,
    ),
    Case(
        "plain-unread",
        "plain",
        "unread",
        causes=_OUT,
        culprits=(1,),
        said="somebody to read what it writes (its standard output)",
        torch=False,
    ),
    Case(
        "plain-asks",
        "plain",
        "asks",
        causes=_OUT,
        culprits=(1,),
        said="waits for an answer from 127.0.0.1:",
        torch=False,
    ),
    Case("plain-event-loop", "plain", "event_loop", causes=_OUT, culprits=(1,), said="no coroutine runs", torch=False),
    Case("plain-stopped", "plain", "stopped", causes=("rank-stopped",), culprits=(1,), stage="program", torch=False),
    Case(
        "plain-dns",
        "plain",
        "name",
        causes=("dns-unresponsive",),
        culprits=(1,),
        stage="program",
        torch=False,
        private=True,
    ),
    Case(
        "plain-child-died",
        "plain",
        "child_died",
        causes=_OUT,
        culprits=(1,),
        said="which it started, ended with exit code 3",
        torch=False,
    ),
    Case(
        "plain-dns-loop",
        "plain",
        "name_in_a_loop",
        causes=("dns-unresponsive",),
        culprits=(1,),
        said="a name look-up at name_in_a_loop",
        torch=False,
        private=True,
    ),
    Case("plain-slow", "plain", "slow", torch=False),
    Case("plain-slow-shell", "plain", "shell", torch=False),
    Case("plain-slow-fetcher", "plain", "fetcher", torch=False),
)


def torch_python() -> str | None:
    """An interpreter that has torch: NCDIAG_LAB_PYTHON, or this one; None where neither has."""
    named = os.environ.get("NCDIAG_LAB_PYTHON")
    if named and Path(named).exists():
        return named
    probe = subprocess.run(
        [sys.executable, "-c", "import importlib.util as u; exit(u.find_spec('torch') is None)"], check=False
    )
    return sys.executable if probe.returncode == 0 else None


def can_hide_resolver() -> bool:
    """Whether this machine lets us have a name server of our own that never answers."""
    return os.geteuid() == 0 and shutil.which("unshare") is not None and shutil.which("ip") is not None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_PRIVATE = (
    'set -e; mount --make-rprivate /; echo "nameserver 127.0.0.1" > "$PROGRAM_DIR/resolv.conf"; '
    'echo "hosts: files dns" > "$PROGRAM_DIR/nsswitch.conf"; '
    'echo "options timeout:30 attempts:5" >> "$PROGRAM_DIR/resolv.conf"; '
    'mount --bind "$PROGRAM_DIR/resolv.conf" /etc/resolv.conf; '
    'mount --bind "$PROGRAM_DIR/nsswitch.conf" /etc/nsswitch.conf; ip link set lo up; exec "$@"'
)
_SILENT = (
    "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    "s.bind(('127.0.0.1', 53))\ntime.sleep(3600)"
)


@contextlib.contextmanager
def running(case: Case, python: str, place: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The ranks of a case, each come to its fault; ended afterwards, by pid."""
    port = _free_port()
    processes: list[subprocess.Popen[bytes]] = []
    started = range(case.world) if case.started is None else case.started
    inside = _namespaces(place) if case.private else None
    try:
        if inside is not None:
            processes.append(inside)
            time.sleep(0.3)
        for rank in started:
            environment = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(dict(case.sizes).get(rank, case.world)),
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "FAULT": case.fault,
                "PROGRAM_DIR": str(place),
                "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": "lo",
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            enter = ["nsenter", f"--target={inside.pid}", "--mount", "--net"] if inside is not None else []
            with (place / f"rank{rank}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        [*enter, python, str(PROGRAMS / f"{case.program}.py")],
                        env=environment,
                        stdout=log,
                        stderr=log,
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                )
        _wait_for([place / f"here-{rank}" for rank in started], place)
        time.sleep(1.0)
        yield processes[1:] if inside is not None else processes
    finally:
        for process in processes:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process and what it started: each has a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _namespaces(place: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["unshare", "-n", "-m", "sh", "-c", _PRIVATE, "sh", sys.executable, "-c", _SILENT],
        env={**os.environ, "PROGRAM_DIR": str(place)},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def _wait_for(paths: list[Path], place: Path) -> None:
    deadline = time.monotonic() + COME_S
    while time.monotonic() < deadline:
        if all(path.exists() for path in paths):
            return
        time.sleep(0.05)
    logs = "\n".join(f"{log.name}: {log.read_text(errors='replace')[-500:]}" for log in sorted(place.glob("*.log")))
    raise RuntimeError(f"not all ranks came to their fault within {COME_S:.0f} s\n{logs}")
