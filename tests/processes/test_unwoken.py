"""Stacks of programs that sleep: exact, and without a trace, so that the next look knows as much as this one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ncdiag.host import Absent, Host
from ncdiag.processes import pulse, unwoken
from ncdiag.processes.look import Options
from ncdiag.processes.sample import sample
from ncdiag.processes.stacks import Stacks
from tests.processes.programs import BUSY, LOCK, RANK, running
from tests.processes.test_stacks import main_frames

BESIDE = """
import sys, threading, time
def polls():
    while True: time.sleep(0.002)
def works():
    value = 1
    while True: value = value % 7 + 1
def inner(): threading.Event().wait()
for target in (globals()[sys.argv[1]], inner): threading.Thread(target=target, name=target.__name__, daemon=True).start()
def sleeps():
    print("ready", flush=True); time.sleep(600)
sleeps()
"""
PIECES = """
import time
def sleeps_in_pieces():
    print("ready", flush=True)
    while True: time.sleep(0.05)
sleeps_in_pieces()
"""
CHILD = """
import subprocess, sys
def waits_for_it():
    print("ready", flush=True); subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"])
waits_for_it()
"""


class WithoutScheduler(Host):
    """A kernel without /proc/PID/sched, as one that was built without CONFIG_SCHED_DEBUG."""

    def read_bytes(self, path: str, limit: int = 1 << 20) -> bytes:
        if path.startswith("/proc/") and path.endswith("/sched"):
            raise Absent(path, "no such file", 2)
        return super().read_bytes(path, limit)


def settled(pid: int) -> dict[int, int]:
    time.sleep(0.3)
    return pulse.turns(Host(), pid)


@pytest.mark.parametrize(("source", "place"), [(LOCK, "holds_up"), (RANK, "waits_for_peers")])
def test_who_sleeps_is_read_and_sleeps_on(tmp_path: Path, source: str, place: str) -> None:
    with running(source, folder=tmp_path) as (program, _):
        before = settled(program.pid)
        read = unwoken.read(Host(), program.pid)
        assert main_frames(read) == [place, "<module>"] and not read.paused
        assert [thread["active"] for thread in read.threads] == [False]
        assert pulse.turns(Host(), program.pid) == before, "the look left a trace"


def test_who_runs_is_paused(tmp_path: Path) -> None:
    with running(BUSY, folder=tmp_path) as (program, _):
        read = unwoken.read(Host(), program.pid)
        assert main_frames(read) == ["spins", "<module>"] and read.paused
        assert not unwoken.read(Host(), program.pid, nonblocking=True).paused


def older_python() -> str | None:
    """An interpreter of this machine whose frames do not tell the number of their thread."""
    known = [shutil.which(f"python3.{minor}") for minor in (8, 9, 10)]
    known += [str(path) for path in Path.home().glob(".pyenv/versions/3.*/bin/python")]
    for path in filter(None, known):
        asked = subprocess.run(
            [path, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True, check=False
        )
        if asked.stdout.split() in (["3", "8"], ["3", "9"], ["3", "10"]):
            return path
    return None


OLDER = older_python()


@pytest.mark.skipif(OLDER is None, reason="no Python 3.8 to 3.10 on this machine")
@pytest.mark.parametrize("inside", [False, True])
def test_threads_of_an_older_python_are_numbered_without_a_pause(tmp_path: Path, inside: bool) -> None:
    if inside and (os.geteuid() != 0 or not shutil.which("unshare")):
        pytest.skip("pid namespaces need root and util-linux")
    (tmp_path / "program.py").write_text(BESIDE)
    program = [str(OLDER), str(tmp_path / "program.py"), "polls"]
    enter = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if inside else []
    with subprocess.Popen([*enter, *program], stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None and started.stdout.readline() == "ready\n"
            children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
            pid = int(children[0]) if inside else started.pid
            settled(pid)
            read = unwoken.read(Host(), pid)
            tids = {int(name) for name in os.listdir(f"/proc/{pid}/task")}
        finally:
            started.kill()
    assert {thread["tid"] for thread in read.threads} == tids and not read.paused
    assert main_frames(read)[0] == "sleeps"


def test_a_thread_that_polls_beside_is_no_reason_to_wake_the_others(tmp_path: Path) -> None:
    with running(BESIDE, "polls", folder=tmp_path) as (program, _):
        settled(program.pid)
        before = pulse.turns(Host(), program.pid)
        read = unwoken.read(Host(), program.pid)
        places = {thread["name"]: thread["frames"][0].name for thread in read.threads}
        assert (places["MainThread"], places["polls"]) == ("sleeps", "polls") and not read.paused
        quiet = {thread["tid"] for thread in read.threads if thread["name"] != "polls"}
        assert quiet <= pulse.slept(before, pulse.turns(Host(), program.pid))


def stack(tid: int, line: int, main: bool = False) -> dict[str, object]:
    from ncdiag.model import Frame

    return {"name": f"t{tid}", "tid": tid, "main": main, "frames": [Frame("f", "a.py", line)]}


def test_what_ran_meanwhile_has_to_look_alike_twice() -> None:
    first, second = Stacks([stack(1, 5, True), stack(2, 7)]), Stacks([stack(1, 5, True), stack(2, 8)])
    assert unwoken._exact(first, Stacks(), {1, 2}), "nobody ran"
    assert not unwoken._exact(first, Stacks(), {1}), "the other one ran, and was read once"
    assert not unwoken._exact(second, first, {1}), "it is somewhere else now"
    assert unwoken._exact(first, first, {1})
    assert not unwoken._exact(first, first, {2}), "the main thread ran"


def test_the_second_look_knows_as_much_as_the_first(tmp_path: Path) -> None:
    with running(CHILD, folder=tmp_path) as (program, _):
        time.sleep(1.0)
        first, second = (sample(Host(), [program.pid], Options(window_s=0.4)).states[0] for _ in range(2))
    assert first.still_s is not None and second.still_s is not None
    assert second.still_s > first.still_s + 0.3 > 1.0, (first.still_s, second.still_s)
    assert "native frames spared" in (second.stack_error or "")


def test_each_cpu_has_a_clock_of_its_own(tmp_path: Path) -> None:
    """They part where a hypervisor takes one of them away, or one works on interrupts more than the other."""
    allowed = os.sched_getaffinity(0)
    for cpu in sorted(allowed)[:4]:
        os.sched_setaffinity(0, {cpu})
        began = time.monotonic()
        try:
            with running(CHILD, folder=tmp_path) as (program, _):
                os.sched_setaffinity(0, allowed - {cpu} or allowed)
                time.sleep(1.0)
                still = pulse.still_s(Host(), program.pid, [program.pid])[program.pid]
                assert os.sched_getaffinity(0) == (allowed - {cpu} or allowed), "it is where it was"
        finally:
            os.sched_setaffinity(0, allowed)
        assert 0.7 <= still <= time.monotonic() - began + 0.1, (cpu, still)


def test_native_frames_cost_the_second_look_its_clock(tmp_path: Path) -> None:
    with running(CHILD, folder=tmp_path) as (program, _):
        time.sleep(2.5)
        began = time.monotonic()
        first, second = (
            sample(Host(), [program.pid], Options(window_s=0.4, native=native)).states[0] for native in ("all", "auto")
        )
        took_s = time.monotonic() - began
    assert (first.still_s or 0.0) >= 1.0, "what was known before the pause counts"
    assert second.still_s is not None and second.still_s <= took_s + 0.1, "the pause began it anew"


def test_who_wakes_by_itself_is_not_still(tmp_path: Path) -> None:
    with running(PIECES, folder=tmp_path) as (program, _):
        time.sleep(0.5)
        (state,) = sample(Host(), [program.pid], Options(window_s=1.0)).states
    assert state.asleep_s is None


def test_without_the_schedulers_clock_the_look_itself_counts(tmp_path: Path) -> None:
    with running(CHILD, folder=tmp_path) as (program, _):
        time.sleep(0.5)
        state = sample(WithoutScheduler(), [program.pid], Options(window_s=0.8)).states[0]
    assert state.still_s is None and state.asleep_s is not None and 0.4 <= state.asleep_s < 3.0


def test_a_stopped_program_is_read_as_it_is(tmp_path: Path) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        os.kill(program.pid, signal.SIGSTOP)
        settled(program.pid)
        read = unwoken.read(Host(), program.pid)
        assert main_frames(read) == ["holds_up", "<module>"] and not read.paused


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="pid namespaces need root and util-linux")
def test_threads_of_a_container_have_their_numbers_here(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(BESIDE)
    inside = [sys.executable, str(tmp_path / "program.py"), "polls"]
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *inside], stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "ready\n"
            pid = int(Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()[0])
            time.sleep(1.0)
            (state,) = sample(Host(), [pid], Options(window_s=0.4)).states
            tids = {int(name) for name in os.listdir(f"/proc/{pid}/task")}
        finally:
            holder.kill()
    assert {thread["tid"] for thread in state.threads} == tids and state.ns_pid == 1
    assert all(thread["state"] for thread in state.threads)
    called = {thread["name"]: (thread.get("call") or {}).get("name") for thread in state.threads}
    assert called["inner"] == "futex", called
