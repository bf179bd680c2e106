"""Nothing is left of a drill, however it ends; and nothing else is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from ncdiag.drill import needs, remains
from tests.drill.world import NCDIAG, environment, left, marked, record_of

pytestmark = [pytest.mark.lab, pytest.mark.skipif(bool(needs.missing("gloo")), reason=str(needs.missing("gloo")))]


@pytest.fixture
def drill(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A drill whose job hangs until it is ended, and its mark."""
    mark = f"{os.getpid()}-{request.node.name}"
    argv = [*NCDIAG, "drill", "gloo-node-missing", "--answer", "rank-missing", "--keep"]
    process = subprocess.Popen(
        argv, env=environment(mark), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    yield process, mark
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("number", "delay_s"), [(signal.SIGINT, 1.5), (signal.SIGTERM, 0.0), (signal.SIGKILL, 0.0), (signal.SIGKILL, 1.5)]
)
def test_a_signal_ends_everything(
    drill: tuple[subprocess.Popen[bytes], str], number: signal.Signals, delay_s: float
) -> None:
    """At once when its hosts are up, and when the engine runs."""
    process, mark = drill
    record = record_of(process.pid)
    time.sleep(delay_s)
    assert len(marked(mark)) > 3
    process.send_signal(number)
    assert process.wait(20) == (-9 if number == signal.SIGKILL else 130)
    assert left(record, mark) == []


def test_where_its_warden_was_killed_as_well_clean_removes_it_and_nothing_else(
    drill: tuple[subprocess.Popen[bytes], str],
) -> None:
    process, mark = drill
    record = record_of(process.pid)
    other = subprocess.Popen(["sleep", "60"], env=environment(mark + "-other"))
    warden = next(pid for pid in marked(mark) if str(record.path).encode() in _command(pid))
    os.kill(warden, signal.SIGKILL)
    process.kill()
    process.wait()
    time.sleep(0.3)
    assert remains.namespaces(record.prefix) and record.path.exists() and marked(mark)
    argv = [*NCDIAG, "drill", "--clean"]
    done = subprocess.run(argv, env=environment(""), capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"process {process.pid}, which is gone" in done.stdout, done.stderr
    assert left(record, mark) == []
    assert other.poll() is None
    other.kill()
    other.wait()


def _command(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_clean_leaves_a_drill_that_runs_alone(drill: tuple[subprocess.Popen[bytes], str]) -> None:
    process, _ = drill
    record = record_of(process.pid)
    remains.clean()
    assert record.path.exists() and process.poll() is None and len(remains.namespaces(record.prefix)) == 3


def test_what_is_no_record_is_never_acted_on() -> None:
    remains.RECORDS.mkdir(mode=0o700, exist_ok=True)
    strange = {
        "nc1x": '{"prefix": "", "folder": "/tmp/ncdiag-lab-x", "owner": 1, "born": 0}',
        "nc2x": '{"prefix": "nc2x", "folder": "/etc", "owner": 1, "born": 0}',
        "nc3x": '{"prefix": "nc4x", "folder": "/tmp/ncdiag-lab-x", "owner": 1, "born": 0}',
        "nc5x": "no JSON",
    }
    paths = [remains.RECORDS / f"{name}.json" for name in strange]
    try:
        for path, text in zip(paths, strange.values(), strict=True):
            path.write_text(text)
        assert not {record.path for record in remains.records()} & set(paths)
    finally:
        for path in paths:
            path.unlink()


def test_a_pid_that_was_given_again_is_another_owner() -> None:
    mine = remains.born(os.getpid())
    assert mine is not None
    assert remains.Record("nc1x", "/tmp/ncdiag-lab-x", os.getpid(), mine).owned
    assert not remains.Record("nc1x", "/tmp/ncdiag-lab-x", os.getpid(), mine - 1).owned
