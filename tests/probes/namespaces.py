"""Small real networks for the tests of this folder: one network namespace with the interfaces that a case asks for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def needs_root() -> None:
    """Skips, with the reason, where namespaces cannot be made."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    made = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")


@contextmanager
def namespace(name: str, commands: Sequence[str]) -> Iterator[str]:
    """A namespace whose name begins with `name`, made by `ip -n NAME …` for each command; it is removed at the end."""
    name = f"{name}-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for command in ("link set lo up", *commands):
            subprocess.run(["ip", "-n", name, *command.split()], check=True)
        settled(name)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def settled(name: str) -> None:
    """Waits until every link with a carrier is said to be up: the kernel says so up to a second later, of a bridge after its ports."""
    quiet = 0
    for _ in range(100):
        told = subprocess.run(["ip", "-n", name, "-json", "link"], capture_output=True, text=True, check=True).stdout
        late = [link for link in json.loads(told) if "LOWER_UP" in link["flags"] and link["operstate"] == "DOWN"]
        quiet = 0 if late else quiet + 1
        if quiet == 2:
            return
        time.sleep(0.05)
    raise RuntimeError(f"{name}: {', '.join(link['ifname'] for link in late)} did not come up")


def python_in(name: str, program: str, *arguments: str, python: str = sys.executable) -> object:
    """What `program` prints as JSON when it runs inside the namespace, from the checkout."""
    told = subprocess.run(
        ["ip", "netns", "exec", name, python, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=ROOT,
    )
    return json.loads(told.stdout.strip().splitlines()[-1])


def facts_in(name: str, probe: str) -> object:
    """The facts that `probe` collects inside the namespace."""
    program = (
        "import json, sys\nfrom ncdiag import registry\nfrom ncdiag.host import Host\n"
        "print(json.dumps(registry.load()[sys.argv[1]].collect(Host())))"
    )
    return python_in(name, program, probe)
