"""/proc/locks as kernels write it, and the lock of a process that runs now."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ncdiag.host import Host, Recorded
from ncdiag.processes.locks import Lock, parse, waited_for
from ncdiag.tree import MemoryTree

COMPOSED = """\
1: FLOCK  ADVISORY  WRITE 4711 fd:01:1311 0 EOF
1: -> FLOCK  ADVISORY  WRITE 4712 fd:01:1311 0 EOF
1:  -> FLOCK  ADVISORY  WRITE 4713 fd:01:1311 0 EOF
2: POSIX  ADVISORY  READ  900 00:1a:22 0 EOF
3: OFDLCK ADVISORY  WRITE -1 fd:01:77 128 128
4: LEASE  ACTIVE    READ  12 fd:01:5 0 EOF
"""


def recorded(**files: str) -> Recorded:
    tree = MemoryTree()
    for name, text in files.items():
        tree.add_file("/proc/" + name.replace("_", "/"), text.encode())
    return Recorded(tree)


def test_lines() -> None:
    assert parse(COMPOSED) == [
        Lock(1, False, "FLOCK", 4711, "fd:01:1311"),
        Lock(1, True, "FLOCK", 4712, "fd:01:1311"),
        Lock(1, True, "FLOCK", 4713, "fd:01:1311"),
        Lock(2, False, "POSIX", 900, "00:1a:22"),
        Lock(3, False, "OFDLCK", -1, "fd:01:77"),
    ]


def test_waiters_lead_to_the_holder_even_where_its_files_may_not_be_read() -> None:
    host = recorded(locks=COMPOSED, **{"4711_cmdline": "python\0train.py\0"})
    told = {"kind": "flock", "file": "", "holder": 4711, "command": "python train.py"}
    assert waited_for(host, [4712, 4713, 900]) == {4712: told, 4713: told}


def test_a_holder_that_ended_is_not_named() -> None:
    host = recorded(locks=COMPOSED)
    assert waited_for(host, [4712])[4712]["holder"] is None
    assert waited_for(recorded(), [4712]) == {}


def test_the_file_is_named(tmp_path: Path) -> None:
    """A child waits for the lock of this process."""
    with (tmp_path / "a.lock").open("w") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        child = os.fork()
        if child == 0:
            with (tmp_path / "a.lock").open("w") as wanted:
                fcntl.flock(wanted, fcntl.LOCK_EX)
            os._exit(0)
        try:
            while not (found := waited_for(Host(), [child])):
                pass
        finally:
            fcntl.flock(kept, fcntl.LOCK_UN)
            os.waitpid(child, 0)
    assert (found[child]["file"], found[child]["holder"]) == (str(tmp_path / "a.lock"), os.getpid())
