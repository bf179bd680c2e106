"""Remedies that ncdiag carries out itself: real files, real processes, a real tmpfs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncdiag.model import Finding, fail, ok, warn
from ncdiag.playbook import envfile
from ncdiag.playbook.actions import Inputs, Prepared, Refused, prepare
from ncdiag.playbook.follow import settings_of
from ncdiag.playbook.schema import Action, EndProcess, Follow, ResizeShm, SetEnv, UnsetEnv


def _prepare(action: Action, inputs: Inputs, *findings: Finding) -> Prepared:
    return prepare(action, inputs, lambda probe: list(findings))


TEXT = "# job\nexport NCCL_SOCKET_IFNAME=nonexist0\nNCCL_DEBUG=INFO\nNCCL_SOCKET_IFNAME=eth9"


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.env"
    path.write_text(TEXT)
    path.chmod(0o640)
    return path


def test_unset_takes_every_line_of_the_name_and_undo_brings_all_back(env_file: Path) -> None:
    prepared = _prepare(UnsetEnv(unset_env=["NCCL_SOCKET_IFNAME"]), Inputs(env_file))
    assert "-export NCCL_SOCKET_IFNAME=nonexist0" in prepared.preview
    assert env_file.read_text() == TEXT, "preparing changes nothing"
    prepared.apply()
    assert env_file.read_text() == "# job\nNCCL_DEBUG=INFO\n"
    assert stat.S_IMODE(env_file.stat().st_mode) == 0o640
    subprocess.run(prepared.undo.split(), check=True)
    assert env_file.read_text() == TEXT
    assert os.listdir(env_file.parent) == [env_file.name]


def test_set_changes_the_line_that_counts_and_drops_the_others(env_file: Path) -> None:
    _prepare(SetEnv(set_env="NCCL_SOCKET_IFNAME"), Inputs(env_file, {"NCCL_SOCKET_IFNAME": "=ens1"})).apply()
    assert env_file.read_text() == "# job\nNCCL_DEBUG=INFO\nNCCL_SOCKET_IFNAME==ens1\n"


@pytest.mark.parametrize(
    ("old", "settings", "new"),
    [
        ("", {"A": "1"}, "A=1\n"),
        ("B=2", {"A": "1"}, "B=2\nA=1\n"),
        ("AB=2\nA =3\n", {"A": None}, "AB=2\nA =3\n"),
        ("A=1\r\nB=2\r\n", {"A": None}, "B=2\r\n"),
        ("#A=1\n", {"A": None}, "#A=1\n"),
    ],
)
def test_other_bytes_stay(old: str, settings: dict[str, str | None], new: str) -> None:
    assert envfile.changed(old, settings) == new


@pytest.mark.parametrize("value", ["a\nLD_PRELOAD=/tmp/x", "a\0", "x" * 500])
def test_a_value_cannot_smuggle_in_another_line(env_file: Path, value: str) -> None:
    with pytest.raises(Refused):
        _prepare(SetEnv(set_env="NCCL_NET"), Inputs(env_file, {"NCCL_NET": value}))


def test_refusals_name_the_way_out(env_file: Path, tmp_path: Path) -> None:
    unset = UnsetEnv(unset_env=["NCCL_NET"])
    for inputs, says in (
        (Inputs(), "--env-file"),
        (Inputs(env_file), "needs no change"),
        (Inputs(tmp_path), "not a plain file"),
        (Inputs(tmp_path / "absent"), "cannot read"),
    ):
        with pytest.raises(Refused, match=says):
            _prepare(unset, inputs)
    with pytest.raises(Refused, match="--value NCCL_NET="):
        _prepare(SetEnv(set_env="NCCL_NET"), Inputs(env_file))


def test_a_file_that_changed_after_it_was_shown_is_left_alone(env_file: Path) -> None:
    prepared = _prepare(UnsetEnv(unset_env=["NCCL_DEBUG"]), Inputs(env_file))
    env_file.write_text("OTHER=1\n")
    with pytest.raises(Refused, match="changed meanwhile"):
        prepared.apply()
    assert env_file.read_text() == "OTHER=1\n"


def test_a_secret_beside_the_change_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "e"
    path.write_text("HF_TOKEN=hf_abcdefghijklmnopqrstuv\nNCCL_NET=IB\n")
    assert "hf_" not in _prepare(UnsetEnv(unset_env=["NCCL_NET"]), Inputs(path)).preview


@pytest.fixture
def stale() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "VLLM::Worker"])
    time.sleep(0.2)
    yield process
    process.kill()
    process.wait()


def test_a_named_left_over_is_ended(stale: subprocess.Popen[bytes]) -> None:
    prepared = _prepare(EndProcess(end_process=["VLLM::"]), Inputs(values={"PID": str(stale.pid)}))
    assert "VLLM::Worker" in prepared.preview
    assert stale.poll() is None
    prepared.apply()
    assert stale.wait(5) == -15


@pytest.mark.parametrize(
    "pid",
    [
        "1",
        "0",
        "-1",
        "x",
        "",
        pytest.param(str(os.getpid()), id="own"),
        pytest.param(str(os.getppid()), id="parent"),
        "2147483646",
    ],
)
def test_a_process_that_must_not_be_ended(pid: str) -> None:
    with pytest.raises(Refused):
        _prepare(EndProcess(end_process=["python", "pytest", "systemd", "init"]), Inputs(values={"PID": pid}))


def test_a_process_that_is_no_engine_is_refused(stale: subprocess.Popen[bytes]) -> None:
    with pytest.raises(Refused, match="is none of"):
        _prepare(EndProcess(end_process=["raylet"]), Inputs(values={"PID": str(stale.pid)}))


def test_a_process_that_ended_meanwhile_is_no_error(stale: subprocess.Popen[bytes]) -> None:
    prepared = _prepare(EndProcess(end_process=["VLLM::"]), Inputs(values={"PID": str(stale.pid)}))
    stale.kill()
    stale.wait()
    assert "ended by itself" in prepared.apply()


IN_NAMESPACE = """
import os, subprocess, sys
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", "/dev/shm"], check=True)
from ncdiag.cli import cli
code = cli.main(["-q", "playbook", "run", "shm-too-small", *sys.argv[1:]], standalone_mode=False)
info = os.statvfs("/dev/shm")
print("SIZE", info.f_blocks * info.f_frsize >> 20, "CODE", int(code))
"""


@pytest.mark.lab
@pytest.mark.parametrize(
    ("options", "size", "code"),
    [(["--apply", "--yes", "--value", "SHM_SIZE=2g"], 2048, 0), ([], 8, 1), (["--apply"], 8, 1)],
    ids=["apply", "dry-run", "unconfirmed"],
)
def test_shm_is_enlarged_and_proved(options: list[str], size: int, code: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root for a mount namespace of its own")
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", IN_NAMESPACE, *options],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert f"SIZE {size} CODE {code}" in done.stdout, done.stdout + done.stderr
    if code == 0:
        assert "result: **repaired**" in done.stdout


def test_shm_refusals() -> None:
    for size in ("16", "0g", "16t", "1g,exec", "16g /dev/shm"):
        with pytest.raises(Refused, match="no size"):
            _prepare(ResizeShm(resize_shm="16g"), Inputs(values={"SHM_SIZE": size}))


@pytest.mark.parametrize(
    ("remedy", "settings"),
    [
        ("unset NCCL_TIMEOUT", {"NCCL_TIMEOUT": None}),
        ("unset NCCL_IB_DISABLE (it is often left over from a test)", {"NCCL_IB_DISABLE": None}),
        ("export NCCL_NET_GDR_LEVEL=PHB", {"NCCL_NET_GDR_LEVEL": "PHB"}),
        ("export NCCL_SOCKET_IFNAME==eth0", {"NCCL_SOCKET_IFNAME": "=eth0"}),
        ("export NCCL_IB_HCA='^=mlx5_0,mlx5_1'", {"NCCL_IB_HCA": "^=mlx5_0,mlx5_1"}),
        ("unset GLOO_IFNAME; export GLOO_SOCKET_IFNAME=eth0", {"GLOO_IFNAME": None, "GLOO_SOCKET_IFNAME": "eth0"}),
        ("unset NCCL_A; export NCCL_B=…", {}),
        ("export VLLM_HOST_IP=<this node's address>", {}),
        ("unset NCCL_IB_HCA, or export NCCL_IB_HCA=mlx5_0", {}),
        ("export NCCL_A=$(id)", {}),
        ("export NCCL_A=`id`", {}),
        ("export LD_PRELOAD=/tmp/x.so", {}),
        ("export PATH=/tmp", {}),
        ("rm -rf /", {}),
        ("unset NCCL_A; rm -rf /", {}),
        ("", {}),
    ],
)
def test_only_advice_that_leaves_nothing_open_is_followed(remedy: str, settings: dict[str, str | None]) -> None:
    assert settings_of([fail("bad", remedy=remedy), ok("good")]) == settings


def test_contradicting_advice_is_not_followed(env_file: Path) -> None:
    findings = [fail("a", remedy="unset NCCL_DEBUG"), warn("b", remedy="export NCCL_DEBUG=WARN")]
    with pytest.raises(Refused, match="leaves nothing open"):
        _prepare(Follow(follow="nccl-environment"), Inputs(env_file), *findings)


def test_following_edits_the_file(env_file: Path) -> None:
    _prepare(Follow(follow="x"), Inputs(env_file), fail("a", remedy="export NCCL_SOCKET_IFNAME==ens1")).apply()
    assert env_file.read_text() == "# job\nNCCL_DEBUG=INFO\nNCCL_SOCKET_IFNAME==ens1\n"
