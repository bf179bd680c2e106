"""What faults do to the hosts of a bench, before the start or while the engine runs."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

from .bench import JOB, Bench


def firewall(host: str, rule: str, hook: str = "output") -> Callable[[Bench], None]:
    """An nft rule on one host."""

    def apply(made: Bench) -> None:
        made.hosts[host].mount(
            f"nft add table inet lab; nft 'add chain inet lab {hook} {{ type filter hook {hook} priority 0; }}'; nft 'add rule inet lab {hook} {rule}'"
        )

    return apply


def decoy(host: str, address: str, name: str = "docker0") -> Callable[[Bench], None]:
    """An interface of its own that leads nowhere."""

    def apply(made: Bench) -> None:
        made.hosts[host].mount(
            f"ip link add {name} type bridge; ip addr add {address} dev {name}; ip link set {name} up"
        )

    return apply


def signalled(host: str, line: str, number: signal.Signals, delay_s: float = 0.0) -> Callable[[Bench], None]:
    """Sends a signal to the process that prints `line` (a regular expression with a group for its pid), or to the job itself on `host`."""

    def act(made: Bench) -> None:
        while not (found := re.search(line, made.text(host))):
            if made.over:
                return
            time.sleep(0.01)
        time.sleep(delay_s)
        pid = int(found[1]) if found.groups() else job_pid(made, host)
        os.kill(pid, number)
        made.acted_at = time.time()

    return act


def job_pid(made: Bench, host: str) -> int:
    """The rank of the gloo job on `host`."""
    listed = made.hosts[host].run("ip", "netns", "pids", made.hosts[host].netns).stdout.split()
    for pid in listed:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if len(words) > 1 and words[1] == str(JOB).encode() and b"python" in words[0]:
            return int(pid)
    raise RuntimeError(f"no rank of the job on {host}")
