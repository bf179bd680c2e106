from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ncdiag.host import Absent, Host, Recorded, TimedOut, TooLarge, Unreadable
from ncdiag.record import Recorder
from ncdiag.tree import open_tree


def test_reads_and_says_why_not(tmp_path: Path) -> None:
    host = Host()
    (tmp_path / "raw").write_bytes(b"caf\xe9\n")
    assert host.read(str(tmp_path / "raw")) == "caf\\xe9\n"
    with pytest.raises(Absent):
        host.read(str(tmp_path / "none"))
    with pytest.raises(Unreadable, match="directory"):
        host.read(str(tmp_path))
    (tmp_path / "big").write_bytes(b"x" * 3_000_000)
    with pytest.raises(TooLarge, match="1048576 bytes"):
        host.read(str(tmp_path / "big"))
    assert host.number(str(tmp_path / "raw")) is None
    assert host.value(str(tmp_path / "none")) is None


def test_name_that_is_no_utf8(tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(str(tmp_path)) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    assert Host().list(str(tmp_path)) == ["caf\\xe9"]


def test_a_link_that_is_there_and_leads_nowhere_is_absent() -> None:
    """That of a process which has ended: `lstat` finds the link, `readlink` does not, and os.path.realpath lets that through."""
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    try:
        link = f"/proc/{ended.pid}/root"
        assert os.path.lexists(link)
        for path in (link, link + "/usr/lib"):
            with pytest.raises(Absent):
                Host().real(path)
    finally:
        ended.wait()


def test_commands() -> None:
    host = Host()
    assert host.run([sys.executable, "-c", "print('a'); raise SystemExit(3)"]).rc == 3
    with pytest.raises(Absent, match="not installed"):
        host.run(["no-such-program-here"])
    started = time.monotonic()
    with pytest.raises(TimedOut, match=r"0\.3 s"):
        host.run(["sleep", "60"], timeout_s=0.3)
    assert time.monotonic() - started < 10


def test_environment_of_another_process_with_the_planned_one_on_top() -> None:
    host = Host(pid=os.getpid(), environment={"NCCL_DEBUG": "INFO", "HF_TOKEN": "abc"})
    assert host.environ()["NCCL_DEBUG"] == "INFO"
    assert host.environ()["HF_TOKEN"] == "<redacted>"
    with pytest.raises(Absent):
        Host(pid=2**22 + 7).environ()


def test_question_that_fails_is_unreadable() -> None:
    def refused() -> None:
        raise PermissionError(errno.EPERM, "no")

    with pytest.raises(Unreadable) as caught:
        Host().ask("q", refused)
    assert caught.value.errno == errno.EPERM


@pytest.mark.parametrize("name", ["tree", "tree.tar.gz"])
def test_recording_replays_what_was_read(tmp_path: Path, name: str) -> None:
    live = tmp_path / "live"
    (live / "devices").mkdir(parents=True)
    (live / "devices" / "value").write_text("42\n")
    (live / "alias").symlink_to("devices")
    (live / "note").write_text("HF_TOKEN=hf_abcdefgh12345678abcdefgh\n")

    def question() -> dict[str, int]:
        return {"answer": 7}

    def look(host: Host) -> list[object]:
        seen: list[object] = [
            host.read(f"{live}/alias/value"),
            host.list(f"{live}/devices"),
            host.real(f"{live}/alias/value"),
            host.link(f"{live}/alias"),
            host.read(f"{live}/note"),
            host.ask("q", question),
            host.stat(f"{live}/devices/value"),
            host.space(str(live)).total_bytes,
            host.run(["echo", "hello"]).out,
            host.number(f"{live}/none"),
            host.exists(f"{live}/none"),
        ]
        for missing in (f"{live}/none", f"{live}/devices"):
            try:
                host.read(missing)
            except (Absent, Unreadable) as error:
                seen.append((type(error).__name__, error.errno))
        return seen

    recorder = Recorder(Host(environment={"MY_SECRET": "planted"}))
    seen, variables = look(recorder), recorder.environ()
    out = str(tmp_path / name)
    recorder.save(out)
    replay = Recorded(open_tree(out))
    assert look(replay) == seen
    assert replay.environ() == variables
    assert replay.node == Host().node
    assert b"planted" not in b"".join(
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and live not in path.parents
    )
    mode = os.stat(out if name.endswith("gz") else out + "/META.json").st_mode & 0o777
    assert mode == 0o600


def test_a_command_is_ended_with_whoever_waits_for_it(tmp_path: Path) -> None:
    """Ctrl-C does not reach it: it stands in a session of its own."""

    class Interrupted(BaseException):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    told = tmp_path / "pid"
    before = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(Interrupted):
            Host().run(["sh", "-c", f"echo $$ > {told}; exec sleep 60"], timeout_s=30)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert not os.path.exists(f"/proc/{told.read_text().strip()}")
