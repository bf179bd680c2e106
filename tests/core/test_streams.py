"""A terminal with few characters, streams that are closed, a disk that is full: the result or one sentence, and the exit code that it means."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LOG = "h:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-Ab to 9637892 bytes\n"


def shell(command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """`command` with `ncdiag` in it, run by a shell."""
    return subprocess.run(
        ["sh", "-c", command.replace("ncdiag", f"exec {sys.executable} -m ncdiag", 1)],
        check=False,
        capture_output=True,
        cwd=cwd,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.log").write_text(LOG)
    return tmp_path


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_a_terminal_without_arrows_and_dots(folder: Path, encoding: str) -> None:
    done = shell("ncdiag diagnose a.log", folder, PYTHONIOENCODING=encoding)
    assert done.returncode == 1 and b"shm-too-small" in done.stdout and b"-> " in done.stdout, done.stderr
    done.stdout.decode(encoding)
    assert shell("ncdiag plan --help", folder, PYTHONIOENCODING=encoding).returncode == 0
    html = shell("ncdiag diagnose a.log --format html", folder, PYTHONIOENCODING=encoding)
    assert html.returncode == 1 and "·" in html.stdout.decode("utf-8")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed(folder: Path, closed: str) -> None:
    done = shell(f"ncdiag diagnose a.log {closed}", folder)
    assert done.returncode == 1 and b"Traceback" not in done.stderr and not done.stderr
    assert shell(f"ncdiag diagnose - {closed}", folder).returncode == 3
    assert shell(f"ncdiag diagnose no-such-file {closed}", folder).returncode == 2
    assert (folder / "a.log").read_text() == LOG


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_no_room_for_the_result(folder: Path) -> None:
    done = shell("ncdiag diagnose a.log >/dev/full", folder)
    assert done.returncode == 2 and b"No space left" in done.stderr and b"broke" not in done.stderr
    assert shell("ncdiag diagnose no-such-file 2>/dev/full", folder).returncode == 2
