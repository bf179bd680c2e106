"""What options take, over every command there is: finite numbers, regular files, and outputs that can be written."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ncdiag.cli import COMMANDS, cli
from ncdiag.cli.types import MAX_S, InputFile, Number, OutputFile, Seconds
from ncdiag.registry import load

ROOT = Path(__file__).parent.parent.parent


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    """Every parameter of every command, those of groups too."""
    context = click.Context(cli)
    todo = [(name, cli.get_command(context, name)) for name in COMMANDS]
    while todo:
        path, command = todo.pop()
        assert command is not None
        if isinstance(command, click.Group):
            todo += [(f"{path} {name}", inner) for name, inner in command.commands.items()]
        for parameter in command.params:
            yield path, parameter


def of(kind: type) -> list[tuple[str, click.Parameter]]:
    return [(path, one) for path, one in parameters() if isinstance(one.type, kind)]


def ncdiag(*argv: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ncdiag", *argv], capture_output=True, text=True, timeout=30, check=False, cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_every_number_is_finite_and_every_file_is_looked_at_first() -> None:
    plain = [
        f"{path} {one.name}" for path, one in parameters() if type(one.type) in (click.FloatRange, type(click.FLOAT))
    ]
    assert plain == []
    loose = [
        f"{path} {one.name}"
        for path, one in of(click.Path)
        if not isinstance(one.type, (InputFile, OutputFile)) and one.type.file_okay  # type: ignore[attr-defined]
    ]
    assert loose == []
    assert len(of(Seconds)) > 10 and len(of(InputFile)) > 15 and len(of(OutputFile)) > 15


def test_options_in_seconds_are_seconds() -> None:
    named = [f"{path} {one.name}" for path, one in of(Number) if (one.name or "").endswith("_s")]
    assert [name for name in named if name not in {f"{path} {one.name}" for path, one in of(Seconds)}] == [
        "metrics rules ttft_p95_s"
    ], "an alert's limit is no time that anything waits"


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "NaN", "Infinity", "1e999", "-nan"])
def test_what_is_not_finite_is_refused_by_every_option(value: str) -> None:
    for path, one in of(Number):
        with pytest.raises(click.BadParameter) as caught:
            one.type.convert(value, one, None)
        assert "is not a finite number" in str(caught.value), path


@pytest.mark.parametrize("value", ["0", "-1", "1e300", str(MAX_S + 1), "ten", "", "1s"])
def test_seconds_are_between_their_limits(value: str) -> None:
    for path, one in of(Seconds):
        with pytest.raises(click.BadParameter):
            one.type.convert(value, one, None)
            pytest.fail(f"{path} {one.name} took {value}")


def test_no_preset_is_refused() -> None:
    for _, one in of(Number):
        if isinstance(one.default, (int, float)):
            assert one.type.convert(one.default, one, None) == one.default


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Words for it -> a path that is no regular file."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)  # the path of a socket is short
        server.bind("socket")
        yield {
            "a FIFO": str(tmp_path / "pipe"),
            "a socket": str(tmp_path / "socket"),
            "a character device": "/dev/zero",
        }


def test_no_command_takes_a_pipe_a_device_or_a_socket_for_a_file(strange: dict[str, str]) -> None:
    for words, name in strange.items():
        for path, one in of(InputFile):
            with pytest.raises(click.BadParameter) as caught:
                one.type.convert(name, one, None)
            assert words in str(caught.value) and name in str(caught.value), path


def test_regular_files_null_and_folders_where_they_are_meant(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert InputFile().convert(str(tmp_path / "file"), None, None) == str(tmp_path / "file")
    assert InputFile(exists=True).convert(os.devnull, None, None) == os.devnull
    assert InputFile(allow_dash=True).convert("-", None, None) == "-"
    assert InputFile(folders=True).convert(str(tmp_path), None, None) == str(tmp_path)
    with pytest.raises(click.BadParameter):
        InputFile().convert(str(tmp_path), None, None)


def test_what_cannot_be_written_is_told_before_the_work(tmp_path: Path, strange: dict[str, str]) -> None:
    for path, one in of(OutputFile):
        for name, words in {
            str(tmp_path / "no" / "out"): "there is no folder", strange["a FIFO"]: "nobody reads", strange["a socket"]: "nobody reads",
        }.items():  # fmt: skip
            with pytest.raises(click.BadParameter) as caught:
                one.type.convert(name, one, None)
            assert "cannot write" in str(caught.value) and words in str(caught.value), path
        assert (
            one.type.convert(str(tmp_path / "new"), one, None) == str(tmp_path / "new")
            and not (tmp_path / "new").exists()
        )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(stat.S_IRUSR)
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    for name in ("file", "new"):
        with pytest.raises(click.BadParameter, match="not writable"):
            OutputFile().convert(str(tmp_path / name), None, None)
    tmp_path.chmod(stat.S_IRWXU)


@pytest.mark.parametrize("argv", [
    ["preflight", "--nodes", "ssh:@{}"], ["preflight", "--nodes", "file:{}"], ["preflight", "--env-file", "{}"], ["reach", "--nodes", "ssh:@{}"],
    ["reach", "--nodes", "ssh:gpu[1-2]", "--ssh-config", "{}"], ["collect", "--nodes", "file:{}", "-o", "out"], ["env", "--check", "{}"],
    ["plan", "{}"], ["bandwidth", "{}"], ["bandwidth", "--nodes", "ssh:@{}"], ["bringup", "--nodes", "ssh:@{}", "--", "true"], ["k8s", "lint", "{}"],
    ["playbook", "run", "--from", "{}"], ["bundle", "show", "{}"], ["report", "{}"], ["topo", "{}"], ["oncall", "--config", "{}", "--check"], ["metrics", "textfile", "--findings", "{}", "-o", "out"],
])  # fmt: skip
def test_a_pipe_ends_every_command_at_once(argv: list[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = ncdiag(*(one.format(tmp_path / "pipe") for one in argv), cwd=tmp_path)
    assert done.returncode == 2 and "FIFO" in done.stderr, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr and done.stdout == ""


def test_a_dash_is_stdout(tmp_path: Path) -> None:
    done = ncdiag("preflight", "--only", "platform", "--format", "json", "-o", "-", cwd=tmp_path)
    assert done.stdout.startswith("{") and not (tmp_path / "-").exists()


def test_a_pipe_among_a_users_own_probes_is_said_and_stops_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "own.py")
    found = load([str(tmp_path)])
    assert "own.py is not a regular file" in found.broken["own"] and "shm" in found
