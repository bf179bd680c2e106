"""Ports and paths that are blocked, taken or silent."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..acts import firewall
from ..bench import PORT, SERVE, Bench
from .base import HEALTHY, HIGH, MESH, RENDEZVOUS, SLOW, fault


@fault("gloo", "master port dropped", "bootstrap-blocked-firewall", node="b", rank=1, stages=RENDEZVOUS, quick=True)
@fault("nodes", "master port dropped", "bootstrap-blocked-firewall", node="b", rank=1, stages=RENDEZVOUS, quick=True)
def port_dropped(made: Bench) -> None:
    made.before.append(firewall("b", f"tcp dport {PORT} drop"))


@fault(
    "gloo",
    "master port refused",
    "bootstrap-blocked-firewall",
    "bootstrap-peer-unreachable",
    node="b",
    rank=1,
    stages=RENDEZVOUS,
    quick=True,
)
@fault(
    "nodes",
    "master port refused",
    "bootstrap-blocked-firewall",
    "bootstrap-peer-unreachable",
    node="b",
    rank=1,
    stages=RENDEZVOUS,
)
def port_refused(made: Bench) -> None:
    made.before.append(firewall("a", f'tcp dport {PORT} iifname "eth0" reject with tcp reset', "input"))


@fault("gloo", "other master port on b", "bootstrap-peer-unreachable", node="b", rank=1, stages=RENDEZVOUS, quick=True)
@fault("nodes", "other master port on b", "bootstrap-peer-unreachable", node="b", rank=1, stages=RENDEZVOUS)
def other_port(made: Bench) -> None:
    made.port["b"] = PORT + 54


@fault(
    "gloo",
    "master address on b leads nowhere",
    "node-ip-wrong-interface",
    "bootstrap-peer-unreachable",
    node="b",
    rank=1,
    stages=RENDEZVOUS,
    quick=True,
)
def master_unroutable(made: Bench) -> None:
    made.master["b"] = "10.99.0.1"


@fault("gloo", "one-way block of the mesh, b to a", "bootstrap-blocked-firewall", stages=MESH, quick=True)
@fault("nodes", "one-way block of the mesh, b to a", "bootstrap-blocked-firewall", stages=MESH)
def mesh_b_to_a(made: Bench) -> None:
    made.before.append(firewall("b", HIGH))


@fault("gloo", "one-way block of the mesh, a to b (harmless: only b dials)", HEALTHY, quick=True)
@fault(
    "nodes",
    "one-way block a to b: the message queues",
    "bootstrap-blocked-firewall",
    stages=("message-queues", *MESH),
    quick=True,
)
def mesh_a_to_b(made: Bench) -> None:
    made.before.append(firewall("a", f'oifname "eth0" {HIGH}'))


def _take_port(port: int) -> Callable[[Bench], None]:
    """Something else on `a` listens on the port."""
    script = f"import socket, time; s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('0.0.0.0', {port})); s.listen(); time.sleep(900)"

    def apply(made: Bench) -> None:
        made.hosts["a"].start("python3", "-c", script)
        time.sleep(0.5)

    return apply


@fault("nodes", "master port in use on a", "port-in-use", node="a", quick=True)
@fault("gloo", "master port in use on a", "port-in-use", node="a", quick=True)
def port_in_use(made: Bench) -> None:
    made.before.append(_take_port(PORT))


@fault("tp2", "API port in use", "port-in-use", node="a")
def api_port_in_use(made: Bench) -> None:
    made.before.append(_take_port(SERVE))


_SILENT = "import socket, time; s = socket.socket(type=2); s.bind(('0.0.0.0', 53)); time.sleep(900)"
"""A name server that takes questions and never answers."""


@fault("gloo", "DNS never answers b, which is told the master's name", "dns-unresponsive", node="b", rank=1, quick=True)
@fault("nodes", "DNS never answers b, which is told the master's name", "dns-unresponsive", node="b", rank=1)
def dns_silent_for_names(made: Bench) -> None:
    made.master["b"] = "master.cluster.internal"
    made.hosts["a"].start("python3", "-c", _SILENT)
    server = f"nameserver {made.hosts['a'].address}\n"
    for name, text in (("resolv.conf", server), ("nsswitch.conf", "hosts: files dns\n")):
        path = made.hosts.folder / name
        path.write_text(text)
        made.hosts["b"].mount(f"[ ! -e /etc/{name} ] || mount --bind {path} /etc/{name}")


@fault("gloo", "DNS that never answers (it goes on by itself)", SLOW, quick=True)
def dns_silent(made: Bench) -> None:
    made.before.append(firewall("a", "udp dport 53 drop"))
    for host in ("a", "b"):
        made.hosts[host].mount(
            "umount /etc/nsswitch.conf; echo 'nameserver 10.77.0.77' > /tmp/ray/resolv; [ ! -e /etc/resolv.conf ] || mount --bind /tmp/ray/resolv /etc/resolv.conf; umount /etc/hosts"
        )
