"""A real Ray cluster over the lab's hosts."""

from __future__ import annotations

import subprocess
from pathlib import Path

from . import engines
from .hosts import Lab, LabHost, wait_for

PORT = 6379
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "DO_NOT_TRACK": "1",
}


def ray(
    host: LabHost, *arguments: str, log: Path, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    program = str(Path(engines.python()).parent / "ray")
    return host.start(
        program,
        *arguments,
        "--node-ip-address",
        host.address,
        "--disable-usage-stats",
        "--block",
        "--num-cpus",
        "1",
        "--object-store-memory",
        "100000000",
        log=log,
        env={**ENVIRONMENT, **(environment or {})},
    )


def start(
    hosts: Lab, head: str, *others: str, gpus: int = 1, environments: dict[str, dict[str, str]] | None = None
) -> dict[str, subprocess.Popen[bytes]]:
    """Head first, then the others; returns when each has said that it runs. Raises RuntimeError with its log."""
    started = {}
    for name in (head, *others):
        role = (
            ["--head", "--port", str(PORT), "--include-dashboard", "false"]
            if name == head
            else ["--address", f"{hosts[head].address}:{PORT}"]
        )
        log = hosts.folder / f"ray-{name}.log"
        environment = (environments or {}).get(name)
        started[name] = ray(hosts[name], "start", *role, "--num-gpus", str(gpus), log=log, environment=environment)
        if not wait_for(lambda log=log: "Ray runtime started" in log.read_text(errors="replace"), 90):
            raise RuntimeError(f"{name}: {log.read_text(errors='replace')[-2000:]}")
    return started
