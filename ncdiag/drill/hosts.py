"""Hosts on one machine: network namespaces on one switch, each with its own host name, /dev/shm, /etc/hosts and /run.

Needs root and iproute2. Everything a lab made (namespaces, processes, mounts) ends with it, or with its process (`remains`); all traffic stays
inside.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import remains

NETWORK = "10.77.0."
"""A private range that only ever exists inside the namespaces."""


def usable() -> str | None:
    """None where a lab can be built, else why not."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "nsenter", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    name = f"nclab-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=False)
    return None


def _sh(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class LabHost:
    """One host: a namespace and the process that holds its name and mounts."""

    name: str
    netns: str
    address: str
    holder: subprocess.Popen[bytes]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    """What `mount` has run since the host was up."""

    def argv(self, command: Sequence[str]) -> list[str]:
        """`command` as it has to be called to run on this host."""
        pid = str(self.holder.pid)
        return [
            "nsenter",
            f"--net=/var/run/netns/{self.netns}",
            f"--uts=/proc/{pid}/ns/uts",
            f"--mount=/proc/{pid}/ns/mnt",
            *command,
        ]

    def run(
        self, *command: str, timeout_s: float = 60.0, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(command),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, **(env or {})},
        )

    def start(
        self, *command: str, log: Path | None = None, env: dict[str, str] | None = None, cwd: str | None = None
    ) -> subprocess.Popen[bytes]:
        """A process of its own group, ended with the lab."""
        with open(log or os.devnull, "wb") as out:
            process = subprocess.Popen(
                self.argv(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(env or {})},
                cwd=cwd,
            )
        self.processes.append(process)
        return process

    def mount(self, script: str) -> None:
        """Runs a shell script in this host's namespaces (mounts, files, firewall rules)."""
        done = self.run("sh", "-ec", script)
        if done.returncode != 0:
            raise RuntimeError(f"{self.name}: {done.stderr.strip()}")
        self.scripts.append(script)


class Lab:
    """Some hosts on one switch."""

    def __init__(self, names: Sequence[str]) -> None:
        self._prefix = remains.free_prefix()
        self._switch = f"{self._prefix}sw"
        self.folder = Path(tempfile.mkdtemp(prefix=remains.FOLDER))
        self.record = remains.Record(self._prefix, str(self.folder), os.getpid(), remains.born(os.getpid()) or 0)
        self._warden = remains.Warden(self.record)
        self.hosts: dict[str, LabHost] = {}
        try:
            _sh("ip", "netns", "add", self._switch)
            _sh("ip", "-n", self._switch, "link", "add", "br0", "type", "bridge")
            _sh("ip", "-n", self._switch, "link", "set", "br0", "up")
            for number, name in enumerate(names, 1):
                self.hosts[name] = self._host(name, number)
            table = "127.0.0.1 localhost\n" + "".join(f"{host.address} {host.name}\n" for host in self.hosts.values())
            (self.folder / "nsswitch").write_text(
                "passwd: files\ngroup: files\nhosts: files\n"
            )  # no name server can be reached from here
            for host in self.hosts.values():
                (self.folder / f"{host.name}.hosts").write_text(table)
                host.mount(
                    f"mount --bind {self.folder}/{host.name}.hosts /etc/hosts; mount --bind {self.folder}/nsswitch /etc/nsswitch.conf"
                )
                host.scripts.clear()
                self.record.hosts[host.name] = {
                    "netns": host.netns,
                    "address": host.address,
                    "holder": host.holder.pid,
                }
            self.record.save()
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> LabHost:
        return self.hosts[name]

    def link(self, name: str, *, mtu: int) -> None:
        """Sets the MTU of a host's eth0 and of its port on the switch."""
        number = list(self.hosts).index(name) + 1
        _sh("ip", "-n", self._switch, "link", "set", f"{self._prefix}o{number}", "mtu", str(mtu))
        _sh("ip", "-n", self.hosts[name].netns, "link", "set", "eth0", "mtu", str(mtu))

    def _host(self, name: str, number: int) -> LabHost:
        netns, inside, outside = f"{self._prefix}{number}", f"{self._prefix}i{number}", f"{self._prefix}o{number}"
        _sh("ip", "netns", "add", netns)
        _sh("ip", "link", "add", inside, "netns", netns, "type", "veth", "peer", "name", outside, "netns", self._switch)
        _sh("ip", "-n", self._switch, "link", "set", outside, "master", "br0", "up")
        _sh("ip", "-n", netns, "link", "set", inside, "name", "eth0")
        _sh("ip", "-n", netns, "addr", "add", f"{NETWORK}{number}/24", "dev", "eth0")
        _sh("ip", "-n", netns, "link", "set", "lo", "up")
        _sh("ip", "-n", netns, "link", "set", "eth0", "up")
        _sh("ip", "-n", netns, "route", "add", "default", "via", f"{NETWORK}254")
        script = (
            f"hostname {name}; mount --make-rprivate /; mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /run/lock; mkdir -p /tmp/ray; "
            "mount -t tmpfs tmpfs /tmp/ray; echo ready; exec sleep 100000"
        )
        holder = subprocess.Popen(
            ["ip", "netns", "exec", netns, "unshare", "--uts", "--mount", "sh", "-ec", script],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert holder.stdout
        if holder.stdout.readline().strip() != b"ready":
            end(holder)
            holder.stdout.close()
            raise RuntimeError(f"{name}: its namespaces could not be set up")
        return LabHost(name, netns, f"{NETWORK}{number}", holder)

    def close(self) -> None:
        """Ends what the lab started, by pid, and removes its namespaces and its folder."""
        for host in self.hosts.values():
            for process in host.processes:
                end(process)
            end(host.holder)
            if host.holder.stdout:
                host.holder.stdout.close()
        self._warden.dismiss()


def end(process: subprocess.Popen[bytes], patience_s: float = 3.0) -> None:
    """Ends one process group that this lab started."""
    if process.poll() is None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
                os.killpg(process.pid, number)
            try:
                process.wait(patience_s)
                return
            except subprocess.TimeoutExpired:
                continue


@contextlib.contextmanager
def lab(*names: str) -> Iterator[Lab]:
    """`with lab("head", "gpu01", "gpu02") as hosts:`"""
    made = Lab(names)
    try:
        yield made
    finally:
        made.close()


def wait_for(condition: object, timeout_s: float = 20.0) -> bool:
    """Polls a callable until it is true."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.05)
    return False
