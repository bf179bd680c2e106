"""Hosts on one machine for real NCCL and vLLM: namespaces (network, processes, name, IPC, mounts) on one router.

Each host has `eth0` (10.77.K.1) and `mgmt0` (10.78.K.1) towards the router, and `docker0`, whose address leads nowhere. Two hosts may use the
same GPU. Needs root, util-linux and pyroute2; nothing leaves the machine, and all of it ends with the lab.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
HIGH_PORTS = (30000, 65534)
"""What a firewall that knows only the store's port drops: NCCL's, gloo's and the message queues' ports."""

_INIT = "import os, time\nprint('ready', flush=True)\nwhile True:\n    try: os.waitpid(-1, 0)\n    except ChildProcessError: time.sleep(0.2)"


class Namespaces:
    """One process that holds a set of namespaces, and what runs in them."""

    def __init__(self, kinds: Sequence[str], setup: str = "") -> None:
        self.flags = ["--net", *kinds]
        inner = ["sh", "-ec", f'{setup}\nexec "$@"', "sh", sys.executable, "-S", "-c", _INIT]
        argv = [
            "unshare",
            *self.flags,
            *(["--fork", "--kill-child", "--mount-proc"] if "--pid" in kinds else []),
            *inner,
        ]
        self.holder = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
        assert self.holder.stdout
        if self.holder.stdout.readline().strip() != b"ready":
            raise RuntimeError("the namespaces could not be set up")
        children = psutil.Process(self.holder.pid).children()
        self.first = children[0].pid if "--pid" in kinds else self.holder.pid
        """The process whose namespaces they are, as this machine numbers it."""

    def argv(self, command: Sequence[str], only_network: bool = False) -> list[str]:
        return ["nsenter", "-t", str(self.first), *(["--net"] if only_network else self.flags), "--", *command]

    def netlink(self, *steps: tuple[str, str, dict[str, Any]]) -> None:
        done = subprocess.run(
            self.argv([sys.executable, str(HERE / "netlink.py"), json.dumps(steps)], only_network=True),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"netlink {steps}: {done.stderr[-400:]}")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.holder.pid, signal.SIGKILL)
        self.holder.wait()
        if self.holder.stdout:
            self.holder.stdout.close()


@functools.cache
def _kinds() -> tuple[str, ...]:
    """Process namespaces too, where this machine has them."""
    kinds = ("--uts", "--ipc", "--mount")
    tried = subprocess.run(
        ["unshare", "--net", "--pid", *kinds, "--fork", "--mount-proc", "true"],
        capture_output=True,
        timeout=20,
        check=False,
    )
    return ("--pid", *kinds) if tried.returncode == 0 else kinds


class Host(Namespaces):
    """One host. `number` from 0."""

    def __init__(self, name: str, number: int, files: Mapping[str, Path], shm: str) -> None:
        self.name, self.number = name, number
        self.address, self.management = f"10.77.{number}.1", f"10.78.{number}.1"
        binds = "\n".join(f"mount --bind {source} {target}" for target, source in files.items())
        super().__init__(
            _kinds(),
            f"echo {name} > /proc/sys/kernel/hostname\nmount -t tmpfs -o size={shm},mode=1777 tmpfs /dev/shm\n"
            f"mount -t sysfs sysfs /sys || true\n{binds}",
        )

    def start(
        self, command: Sequence[str], env: Mapping[str, str], log: Path, cwd: str = "/tmp"
    ) -> subprocess.Popen[bytes]:
        """A process of its own session; the program itself is the child of the `nsenter` that is returned."""
        with log.open("ab") as out:
            return subprocess.Popen(
                self.argv(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={**env, "HOSTNAME": self.name},
                cwd=cwd,
            )

    def run(
        self, command: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(command),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**(env or os.environ), "HOSTNAME": self.name},
        )


class Lab:
    """Some hosts and the router between them."""

    def __init__(self, count: int, shm: str = "8g", hide: Mapping[int, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ncdiag-gpu-"))
        self.router = Namespaces([])
        self.hosts: list[Host] = []
        names = "127.0.0.1 localhost\n" + "".join(f"10.77.{number}.1 node{number}\n" for number in range(count))
        (self.folder / "hosts").write_text(names)
        (self.folder / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
        (self.folder / "nothing").mkdir()
        files = {"/etc/hosts": self.folder / "hosts", "/etc/nsswitch.conf": self.folder / "nsswitch.conf"}
        try:
            for number in range(count):
                (self.folder / f"name{number}").write_text(f"node{number}\n")
                own = {"/etc/hostname": self.folder / f"name{number}"}
                hidden = {hide[number]: self.folder / "nothing"} if hide and number in hide else {}
                self.hosts.append(Host(f"node{number}", number, {**files, **own, **hidden}, shm))
                self._wire(self.hosts[-1])
            forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
            subprocess.run(self.router.argv(["sh", "-c", forward], only_network=True), check=True, timeout=20)
        except BaseException:
            self.close()
            raise

    def _wire(self, host: Host) -> None:
        outside: list[tuple[str, str, dict[str, Any]]] = []
        inside: list[tuple[str, str, dict[str, Any]]] = [("link", "set", {"dev": "lo", "state": "up"})]
        for device, port, net in (("eth0", f"port{host.number}", "10.77"), ("mgmt0", f"mport{host.number}", "10.78")):
            gateway = f"{net}.{host.number}.254"
            outside += [
                ("link", "add", {"ifname": device, "kind": "veth", "peer": {"ifname": port}}),
                ("addr", "add", {"dev": port, "address": gateway, "prefixlen": 24}),
                ("link", "set", {"dev": port, "state": "up"}),
                ("link", "set", {"dev": device, "net_ns_pid": host.first}),
            ]
            inside += [
                ("addr", "add", {"dev": device, "address": f"{net}.{host.number}.1", "prefixlen": 24}),
                ("link", "set", {"dev": device, "state": "up"}),
                ("route", "add", {"dst": f"{net}.0.0/16", "gateway": gateway, "dev": device}),
            ]
        inside += [
            ("link", "add", {"ifname": "docker0", "kind": "bridge"}),
            ("link", "set", {"dev": "docker0", "state": "up"}),
            ("addr", "add", {"dev": "docker0", "address": "172.17.0.1", "prefixlen": 16}),
        ]
        self.router.netlink(*outside)
        host.netlink(*inside)

    def cut(self, towards: int, how: str = "blackhole", but: int | None = None) -> None:
        """From now on the router discards what goes to a host's `eth0`: in silence (`blackhole`), or with an ICMP answer (`unreachable`).

        With `but` only TCP to high ports, as a firewall does that was opened for that one port and its answers.
        """
        goal = {"dst": f"10.77.{towards}.1", "dst_len": 32}
        if but is None:
            self.router.netlink(("rule", "add", {**goal, "action": how, "priority": 200}))
            return
        answers = {
            **goal,
            "action": "to_tbl",
            "table": 254,
            "priority": 100,
            "FRA_IP_PROTO": 6,
            "FRA_SPORT_RANGE": f"{but}:{but}",
        }
        high = {
            **goal,
            "action": how,
            "priority": 200,
            "FRA_IP_PROTO": 6,
            "FRA_DPORT_RANGE": "{}:{}".format(*HIGH_PORTS),
        }
        self.router.netlink(("rule", "add", answers), ("rule", "add", high))

    def slow(self, towards: int, rate_bytes_s: int) -> None:
        """From now on no more than this passes to a host's `eth0`."""
        self.router.netlink(
            (
                "tc",
                "add",
                {
                    "kind": "tbf",
                    "dev": f"port{towards}",
                    "handle": 0x10000,
                    "rate": rate_bytes_s,
                    "burst": 1 << 16,
                    "latency": "400ms",
                },
            )
        )

    def close(self) -> None:
        for namespaces in (*self.hosts, self.router):
            namespaces.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def lab(count: int, **options: Any) -> Iterator[Lab]:
    made = Lab(count, **options)
    try:
        yield made
    finally:
        made.close()


def program(process: subprocess.Popen[bytes]) -> psutil.Process | None:
    """The program that an `nsenter` started; None when it has ended."""
    try:
        children = psutil.Process(process.pid).children()
    except psutil.Error:
        return None
    return children[0] if children and process.poll() is None else None


def inner_pid(process: psutil.Process) -> int | None:
    """Its number inside its own process namespace; None when it has ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return None
    return next((int(line.split()[-1]) for line in status.splitlines() if line.startswith("NSpid:")), process.pid)


def wait_for(condition: Any, limit_s: float, every_s: float = 0.2) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(every_s)
    return False
