"""The table of NCCL's own checks names only probes that exist, and every RDMA and GPU probe is in it."""

from __future__ import annotations

import re
from pathlib import Path

from ncdiag import registry

TEXT = (Path(__file__).parent.parent.parent / "docs" / "nccl-checks.md").read_text()
FACTS = {"gpus"}
"""Sources of facts behind other probes, which need no line of their own."""


def test_named_probes_exist() -> None:
    probes = set(registry.load())
    cells = [line.split("|")[2] for line in TEXT.splitlines() if line.startswith("|") and "---" not in line]
    named = {word for cell in cells for word in re.findall(r"`([a-z0-9-]+)`", cell)} - {"ncdiag"}
    assert named <= probes, named - probes


def test_every_rdma_and_gpu_probe_is_named() -> None:
    concerned = re.compile(r"(rdma|roce|verbs|gpu|nvlink|pci|numa|acs)")
    missing = {name for name in registry.load() if concerned.match(name) and f"`{name}`" not in TEXT} - FACTS
    assert not missing
