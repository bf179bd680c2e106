"""What travels runs on a bare interpreter of the oldest version, with nothing installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ncdiag import payload, registry
from ncdiag.model import NodeFacts

REQUEST = {"budget_s": 30, "environment": {"NCCL_DEBUG": "INFO"}}


def _old_pythons() -> list[str]:
    found = [path for minor in range(8, 15) if (path := shutil.which(f"python3.{minor}")) and _runs(path)]
    pyenv = Path.home() / ".pyenv" / "versions"
    found += [str(path) for path in sorted(pyenv.glob("3.*/bin/python")) if int(path.parts[-3].split(".")[1]) >= 8]
    return sorted(set(found)) or [sys.executable]


def _runs(path: str) -> bool:
    return subprocess.run([path, "-c", ""], check=False, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("payload") / "p.zip"
    path.write_bytes(payload.pack((), REQUEST))
    return path


@pytest.mark.parametrize("python", _old_pythons())
def test_runs_isolated(packed: Path, python: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [python, "-S", "-I", str(packed)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    node = NodeFacts(**json.loads(payload.unwrap("Welcome!\n" + done.stdout + "bye\n")))
    wrong = {name: reason for name, reason in node.errors.items() if "Error" in reason.split(":")[0]}
    assert not wrong, wrong
    assert node.facts["shm"]["total_bytes"] > 0


def test_holds_every_probe_and_no_more_than_travels(packed: Path) -> None:
    names = zipfile.ZipFile(packed).namelist()
    assert {f"ncdiag/probes/{probe.replace('-', '_')}.py" for probe in registry.load()} <= set(names)
    assert not [
        name for name in names if name.startswith(("ncdiag/cli", "ncdiag/report", "ncdiag/playbook", "ncdiag/fleet"))
    ]
    assert payload.pack((), REQUEST) == packed.read_bytes(), "the same input gives the same bytes"


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "banner only",
        "\nncdiag-payload-begin 10\nabc",
        "\nncdiag-payload-begin x\nabc\n",
        "\nncdiag-payload-begin 3\nabcd\n",
    ],
)
def test_cut_or_foreign_output_is_said(printed: str) -> None:
    with pytest.raises(ValueError, match="its output"):
        payload.unwrap(printed)


def test_users_probe_travels(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from ncdiag.model import Probe\nPROBE = Probe('mine', 'm', None, lambda host: {'node': host.node})\n"
    )
    archive = tmp_path / "p.zip"
    archive.write_bytes(payload.pack([str(tmp_path)], {"probes": ["mine"]}))
    out = subprocess.run(
        [sys.executable, "-S", "-I", str(archive)],
        check=False,
        capture_output=True,
        text=True,
    ).stdout
    assert json.loads(payload.unwrap(out))["facts"]["mine"]["node"]
