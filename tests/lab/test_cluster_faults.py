"""What only shows between nodes: one node with another version, MTU 1500 among 9000, a host name twice, an address twice, a clock 90 s off.

The wrong clock is libfaketime's, set for the sessions of that node's sshd: time namespaces do not reach the wall clock.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncdiag.drill.hosts import Lab, lab, usable
from ncdiag.drill.sshd import Ssh

ROOT = Path(__file__).parent.parent.parent
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
NODES = ("gpu01", "gpu02", "gpu03", "gpu04", "gpu05", "gpu06", "gpu07")
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(usable() is not None, reason=str(usable())),
    pytest.mark.skipif(
        shutil.which("sshd", path="/usr/sbin:/usr/bin") is None, reason="openssh-server is not installed"
    ),
    pytest.mark.skipif(not FAKETIME, reason="libfaketime is not installed"),
]
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def engine(folder: Path, vllm: str) -> Path:
    """An interpreter with an engine beside it, as far as package metadata go."""
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for name, version in (("vllm", vllm), ("torch", "2.8.0")):
        (packages / f"{name}-{version}.dist-info").mkdir(parents=True)
        (packages / f"{name}-{version}.dist-info" / "METADATA").write_text(METADATA.format(name=name, version=version))
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\nversion = {sys.version.split()[0]}\n")
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def result() -> Iterator[tuple[Any, float]]:
    """gpu02: vLLM of another version; gpu03: MTU 1500; gpu05: gpu04's host name; gpu06: gpu01's second address; gpu07: 90 s ahead."""
    with lab("head", *NODES) as made:
        ssh = Ssh(made)
        for name in NODES:
            clock = f"SetEnv LD_PRELOAD={FAKETIME[0]} FAKETIME=+90s" if name == "gpu07" else ""
            ssh.serve(made[name], extra=clock)
            made.link(name, mtu=1500 if name == "gpu03" else 9000)
        python = engine(made.folder / "engine", "0.11.0")
        engine(made.folder / "other", "0.10.2")
        made["gpu02"].mount(f"mount --bind {made.folder}/other {made.folder}/engine")
        made["gpu05"].mount("hostname gpu04")
        for name in ("gpu01", "gpu06"):
            made[name].mount("ip addr add 10.77.200.1/24 dev eth0")
        yield preflight(made, ssh, python)


def preflight(made: Lab, ssh: Ssh, python: Path) -> tuple[Any, float]:
    started = time.monotonic()
    argv = [
        sys.executable,
        "-m",
        "ncdiag",
        "preflight",
        "--nodes",
        "ssh:gpu[01-07]",
        "--ssh-config",
        str(ssh.config),
        "--python",
        str(python),
    ]
    done = made["head"].run(*argv, "--format", "json", env={"PYTHONPATH": str(ROOT)}, timeout_s=120)
    assert done.returncode in (0, 1, 3), done.stderr
    return json.loads(done.stdout), time.monotonic() - started


def found(result: tuple[Any, float], probe: str) -> list[dict[str, Any]]:
    return [
        finding
        for finding in result[0]["findings"]
        if finding["probe"] == probe and finding["status"] in ("warn", "fail")
    ]


def test_all_answer_and_in_time(result: tuple[Any, float]) -> None:
    assert result[0]["nodes"] == list(NODES) and not found(result, "node")
    assert result[1] < 60


def test_another_version(result: tuple[Any, float]) -> None:
    (finding,) = found(result, "engine-versions")
    assert finding["where"]["node"] == "gpu02" and finding["cause"] == "version-mismatch"
    assert "vllm is 0.10.2 on gpu02; 0.11.0 on the other 6" in finding["summary"]


def test_mtu_1500_among_9000(result: tuple[Any, float]) -> None:
    (finding,) = found(result, "interface-link")
    assert (finding["where"]["node"], finding["cause"], finding["expected"]) == ("gpu03", "mtu-mismatch", 9000)


def test_host_name_twice(result: tuple[Any, float]) -> None:
    names = [finding for finding in found(result, "host-name") if "call themselves" in finding["summary"]]
    assert len(names) == 1 and "2 nodes call themselves gpu04: gpu[04-05]" in names[0]["summary"]


def test_address_twice(result: tuple[Any, float]) -> None:
    (finding,) = found(result, "address-unique")
    assert (
        finding["where"]["node"] == "gpu06"
        and "10.77.200.1" in finding["summary"]
        and "gpu[01,06]" in finding["summary"]
    )


def test_clock_90_seconds_ahead(result: tuple[Any, float]) -> None:
    (finding,) = found(result, "clock-offset")
    assert finding["where"]["node"] == "gpu07" and finding["cause"] == "clock-skew" and 88 < finding["observed"] < 92
