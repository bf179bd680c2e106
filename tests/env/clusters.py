"""COMPOSED clusters for `ncdiag env`, saved as snapshots that `--nodes file:` reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ncdiag import registry
from ncdiag.collect import collect
from ncdiag.model import Snapshot
from tests.probes.machines import Machine, eight_rails

ROOT = Path(__file__).parent.parent.parent


def with_links(machine: Machine, *links: tuple[str, str]) -> Machine:
    """Interfaces `(name, IPv4 address)`, all of a /24; the last has the default route."""
    shown: list[dict[str, Any]] = []
    for number, (name, address) in enumerate(links, 2):
        shown.append({
            "ifindex": number, "ifname": name, "flags": ["UP", "RUNNING", "LOWER_UP", "BROADCAST"], "mtu": 1500, "operstate": "UP",
            "address": f"02:00:00:00:00:{number:02x}",
            "addr_info": [{"family": "inet", "local": address, "prefixlen": 24, "scope": "global", "label": name}],
        })  # fmt: skip
    gateway = f"{links[-1][0] if links else 'lo'}\t00000000\tFE0200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    machine.file(
        "/proc/net/route",
        f"Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n{gateway}",
    )
    return machine.command("ip -j addr", json.dumps(shown))


def two_nodes(names: tuple[str, str] = ("gpu01", "gpu02"), links: tuple[str, str] = ("eth0", "eth0")) -> list[Machine]:
    """Two eight-rail machines on one network, each with a decoy interface of its own."""
    return [
        with_links(eight_rails(name), ("eno9", f"10.77.{20 + number}.1"), (link, f"192.0.2.{number}"))
        for number, (name, link) in enumerate(zip(names, links, strict=True), 1)
    ]


def saved(folder: Path, machines: list[Machine]) -> Path:
    sources = registry.load().sources(registry.load())
    snapshot = Snapshot({machine.meta["node"]: collect(machine.host(), sources) for machine in machines})
    path = folder / "nodes.json"
    path.write_text(json.dumps(snapshot.as_dict()))
    return path


def env(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ncdiag", "env", *arguments],
        check=False, capture_output=True, text=True, timeout=120, input=stdin, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
