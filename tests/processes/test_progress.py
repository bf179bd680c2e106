"""What a process that writes shows, whatever it writes to."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ncdiag.hang import activity
from ncdiag.host import Host
from ncdiag.processes.progress import between, look
from tests.processes.programs import running

REWRITES = """
import sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    file.write(bytes(1 << 20)); print("ready", flush=True)
    while True:
        file.seek(0); file.write(bytes(1 << 16)); time.sleep(0.01)
"""


@pytest.mark.parametrize("folder", ["disk", "memory"])
def test_a_checkpoint_that_is_written_moves(tmp_path: Path, folder: str) -> None:
    """Also over pages that are dirty already, and into a file system in memory: no other counter than wchar shows these."""
    file = tmp_path / "checkpoint" if folder == "disk" else Path(f"/dev/shm/ncdiag-test-{os.getpid()}")
    try:
        with running(REWRITES, str(file), folder=tmp_path) as (program, _):
            first = look(Host(), program.pid)
            time.sleep(0.5)
            second = look(Host(), program.pid)
    finally:
        file.unlink(missing_ok=True)
    assert first is not None and second is not None
    assert activity.moves_data(between(first, second))
