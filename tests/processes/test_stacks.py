"""Stacks of real programs: waiting, spinning, stopped, ended, not Python, not allowed."""

from __future__ import annotations

import importlib.metadata
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ncdiag.host import Host
from ncdiag.processes import stacks
from ncdiag.processes.denied import way_out
from ncdiag.processes.kernel import look
from ncdiag.processes.sample import Options, sample
from tests.processes.programs import BUSY, LOCK, running


def test_the_program_of_a_package_that_was_installed_into_a_folder_is_found(tmp_path: Path) -> None:
    """`pip install --target`: its record points elsewhere, and nothing is in PATH."""
    package = importlib.metadata.distribution("py-spy")
    program = stacks.py_spy()
    assert program is not None
    record = next(Path(str(package.locate_file(file))) for file in package.files or () if file.name == "METADATA")
    shutil.copytree(record.parent, tmp_path / record.parent.name)
    (tmp_path / "bin").mkdir()
    shutil.copy(program, tmp_path / "bin" / "py-spy")
    interpreter = tmp_path / "python"
    interpreter.symlink_to(Path(sys.executable).resolve())
    code = "from ncdiag.processes import stacks; print(stacks.py_spy())"
    environ = {"PATH": "/nowhere", "PYTHONPATH": f"{tmp_path}:{Path(stacks.__file__).parents[2]}"}
    done = subprocess.run([str(interpreter), "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "bin" / "py-spy")


def main_frames(read: stacks.Stacks) -> list[str]:
    return [frame.name for thread in read.threads if thread["main"] for frame in thread["frames"] if not frame.native]


def wait_for_state(pid: int, letters: str) -> None:
    deadline = time.monotonic() + 5
    while look(Host(), pid).state not in letters and time.monotonic() < deadline:
        time.sleep(0.02)
    assert look(Host(), pid).state in letters


def test_python_frames_of_a_waiting_program(tmp_path: Path) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        read = stacks.read(program.pid)
        assert main_frames(read) == ["holds_up", "<module>"]
        assert read.error is None and not read.native
        frame = read.threads[0]["frames"][0]
        assert frame.file == str(tmp_path / "program.py") and frame.line == 4


def test_native_frames_stand_inside_of_the_python_ones(tmp_path: Path) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        read = stacks.read(program.pid, native=True)
        assert read.native and read.error is None
        frames = read.threads[0]["frames"]
        assert frames[0].native and not frames[0].name.startswith("0x")
        assert main_frames(read) == ["holds_up", "<module>"]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="pid namespaces need root and util-linux")
def test_native_frames_of_a_program_in_a_pid_namespace(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LOCK)
    inside = [sys.executable, str(tmp_path / "program.py")]
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *inside], stdout=subprocess.DEVNULL
    ) as holder:
        try:
            children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
            deadline = time.monotonic() + 10
            read = stacks.Stacks()
            while time.monotonic() < deadline and not (read.native and main_frames(read) == ["holds_up", "<module>"]):
                time.sleep(0.1)
                if pid := children.read_text().split():
                    read = stacks.read(int(pid[0]), native=True)
            assert read.native and read.error is None
            assert main_frames(read) == ["holds_up", "<module>"] and read.threads[0]["main"]
        finally:
            holder.kill()


def test_a_stopped_program_is_read_without_pausing_it(tmp_path: Path) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        os.kill(program.pid, signal.SIGSTOP)
        wait_for_state(program.pid, "T")
        assert not look(Host(), program.pid).pausable
        for nonblocking in (True, False):
            assert main_frames(stacks.read(program.pid, nonblocking=nonblocking)) == ["holds_up", "<module>"]
        native = stacks.read(program.pid, native=True)
        assert main_frames(native) == ["holds_up", "<module>"] and "no native frames" in (native.error or "")
        assert look(Host(), program.pid).state == "T", "a stopped program stays stopped"


def test_a_spinning_program_runs_on(tmp_path: Path) -> None:
    with running(BUSY, folder=tmp_path) as (program, _):
        assert main_frames(stacks.read(program.pid)) == ["spins", "<module>"]
        wait_for_state(program.pid, "R")


def test_an_ended_program_is_one_line(tmp_path: Path) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        pass
    read = stacks.read(program.pid)
    assert read.gone and read.error == f"process {program.pid} ended during the dump"


def test_a_program_that_is_no_python() -> None:
    program = subprocess.Popen(["sleep", "60"])
    try:
        error = stacks.read(program.pid).error or ""
        assert "which is no Python that py-spy knows" in error
    finally:
        program.kill()
        program.wait()


def test_only_listed_variables_are_kept(tmp_path: Path) -> None:
    source = """
import threading
def connect(host, port, rank, world_size, prompt, api_key):
    lock = threading.Lock(); lock.acquire(); print("ready", flush=True); lock.acquire()
connect("192.0.2.7", 29500, 3, 8, "what a person asked", "hf_abcdefghijklmnopqrstuvwx")
"""
    with running(source, folder=tmp_path) as (program, _):
        assert stacks.read(program.pid).variables == {}
        assert stacks.read(program.pid, variables=True).variables == {
            "host": '"192.0.2.7"',
            "port": "29500",
            "rank": "3",
            "world_size": "8",
        }


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv to give up rights"
)
@pytest.mark.parametrize(
    ("rights", "said"),
    [
        (
            ("--reuid=65534", "--clear-groups", "--inh-caps=-all"),
            "it belongs to user 0, ncdiag runs as 65534; run it as root (sudo) or as user 0",
        ),
        (("--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"), "docker: --cap-add SYS_PTRACE"),
    ],
)
def test_without_permission_the_way_out_is_named(tmp_path: Path, rights: tuple[str, ...], said: str) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        code = f"from ncdiag.processes import denied; print(denied.way_out({program.pid}, 'Permission denied (os error 13)'))"
        root = str(Path(__file__).parent.parent.parent)
        shown = subprocess.run(
            ["setpriv", *rights, sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=False
        )
        if shown.returncode and "Permission denied" in shown.stderr:
            pytest.skip("the checkout is not readable for another user")
        assert f"process {program.pid} may not be traced" in shown.stdout, shown.stderr
        assert said in shown.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("Error: Unsupported version of Python: 3.19.0", "pip install -U py-spy"),
        ("py-spy gave no answer within 5 s", "try --nonblocking"),
        ("Error: Failed to get stack traces\nCaused by:\n 0: Failed to suspend process", "could not be paused"),
        ("Error: Failed to find a python interpreter in the .data section", "starting or ending"),
    ],
)
def test_py_spys_words_become_a_way_out(words: str, said: str) -> None:
    assert said in way_out(os.getpid(), words)


WRITES = """
import os, sys
reader, writer = os.pipe()
def writes():
    print("ready", flush=True)
    count = os.write(writer, b"x" * 1000000)
    print("cut short after", count, flush=True)
writes()
"""


def test_a_write_that_its_reader_does_not_take_is_not_cut_short(tmp_path: Path) -> None:
    with running(WRITES, folder=tmp_path) as (process, _):
        time.sleep(0.3)
        (state,) = sample(Host(), [process.pid], Options(0.6, native="all")).states
        assert process.stdout is not None
        assert not select.select([process.stdout], [], [], 0.3)[0], process.stdout.readline()
    assert any(frame.name == "writes" for thread in state.threads for frame in thread["frames"])
    assert "pipe_write" in state.wchan
