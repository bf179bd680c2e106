"""Real sshd on the lab's hosts, and the client configuration that reaches them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .hosts import Lab, LabHost, wait_for


def key(path: Path) -> Path:
    """A new key pair; returns the private half's path."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


class Ssh:
    """Keys and configuration of one lab."""

    def __init__(self, hosts: Lab) -> None:
        self._lab = hosts
        self._folder = hosts.folder
        self._client = key(self._folder / "client")
        (self._folder / "authorized").write_text((self._folder / "client.pub").read_text())
        self._known: list[str] = []
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self.config = self._folder / "ssh_config"
        self.config.write_text(
            f"Host *\n  User root\n  IdentityFile {self._client}\n  IdentitiesOnly yes\n  UserKnownHostsFile {self._folder}/known\n"
            "  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  LogLevel ERROR\n"
        )

    def environment(self, host: LabHost, variables: Mapping[str, str]) -> None:
        """Sessions on `host`, where sshd runs, have these variables from now on."""
        config = self._folder / f"{host.name}.sshd"
        words = " ".join(f"{name}={value}" for name, value in variables.items())
        config.write_text(f"{config.read_text()}SetEnv {words}\n")
        self._servers[host.name].send_signal(signal.SIGHUP)

    def serve(self, host: LabHost, *, extra: str = "", known: bool = True) -> None:
        """Starts sshd on `host`; with `known` False the client knows another key for it."""
        private = key(self._folder / f"{host.name}.key")
        announced = private if known else key(self._folder / f"{host.name}.other")
        kind, public = announced.with_suffix(".key.pub" if known else ".other.pub").read_text().split()[:2]
        self._known.append(f"{host.name},{host.address} {kind} {public}")
        (self._folder / "known").write_text("\n".join(self._known) + "\n")
        config = self._folder / f"{host.name}.sshd"
        config.write_text(
            f"Port 22\nListenAddress {host.address}\nHostKey {private}\nAuthorizedKeysFile {self._folder}/authorized\nPidFile none\n"
            f"PermitRootLogin yes\nStrictModes no\nUsePAM no\nMaxStartups 100:30:200\n{extra}\n"
        )
        Path("/run/sshd").mkdir(exist_ok=True)
        log = self._folder / f"{host.name}.log"
        self._servers[host.name] = host.start("/usr/sbin/sshd", "-D", "-e", "-f", str(config), log=log)
        if not wait_for(
            lambda: ":22 " in host.run("ss", "-ltn").stdout or "0016" in host.run("cat", "/proc/net/tcp").stdout
        ):
            raise RuntimeError(log.read_text(errors="replace"))
