"""A module imports only what stands above it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent / "ncdiag"
LAYERS = [
    "exits",
    "suggest",
    "nodeset",
    "inwords",
    "placeholders",
    "files",
    "rtnetlink",
    "redact",
    "model",
    "shapes",
    "tree",
    "host",
    "parity",
    "engine",
    "registry",
    "collect",
    "record",
    "payload",
    "check",
    "explain",
    "fleet",
    "nccl",
    "probes",
    "stages",
    "logs",
    "processes",
    "hang",
    "sizing",
    "playbooks",
    "bundle",
    "playbook",
    "report",
    "reach",
    "bandwidth",
    "bringup",
    "drill",
    "metrics",
    "manifests",
    "oncall",
    "cli",
]
"""From the ground up; docs/decisions/0002-layers.md says why it differs from a plain list of the folders."""

HEAVY = {"torch", "ray", "vllm", "pynvml"}
FILES = sorted(path for path in ROOT.rglob("*.py") if "playbooks" not in path.parts)


def _room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _imported(path: Path) -> list[tuple[str, bool]]:
    """(module, whether at the top of the file)."""
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        top = node in tree.body
        if isinstance(node, ast.Import):
            found += [(alias.name, top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = ["ncdiag", *path.relative_to(ROOT).parts[:-1]]
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.append((module, top))
            if module == "ncdiag":
                found += [(f"ncdiag.{alias.name}", top) for alias in node.names]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_upwards(path: Path) -> None:
    room = _room(path)
    if room in ("__init__", "__main__"):
        return
    assert room in LAYERS, f"{room} is in no layer"
    for module, top in _imported(path):
        parts = module.split(".")
        if parts[0] == "ncdiag" and len(parts) > 1 and parts[1] != room and parts[1] in LAYERS:
            assert LAYERS.index(parts[1]) < LAYERS.index(room), f"{path.name} imports {module}, which stands below it"
        assert not (top and parts[0] in HEAVY), f"{path.name} imports {module} at its top"


def test_help_imports_neither_heavy_nor_unneeded() -> None:
    script = (
        "import sys\nfrom ncdiag.cli import cli\n"
        "try:\n    cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('psutil', 'pydantic', 'yaml', 'jinja2', 'torch', 'ray', 'ClusterShell', 'pynvml') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.rstrip().endswith("[]"), out
