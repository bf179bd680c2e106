"""Interfaces and addresses that are the wrong ones."""

from __future__ import annotations

import re

from ..acts import decoy
from ..bench import Bench
from .base import MESH, fault


@fault("gloo", "interface of GLOO_SOCKET_IFNAME is missing on b", "socket-ifname-wrong", node="b", rank=1, quick=True)
@fault("nodes", "interface of GLOO_SOCKET_IFNAME is missing on b", "socket-ifname-wrong", node="b", rank=1, quick=True)
def interface_missing(made: Bench) -> None:
    made.env["b"]["GLOO_SOCKET_IFNAME"] = "ib0"


@fault("gloo", "GLOO_SOCKET_IFNAME=docker0 on both", "socket-ifname-wrong", quick=True)
@fault("nodes", "GLOO_SOCKET_IFNAME=docker0 on both", "socket-ifname-wrong")
def docker0(made: Bench) -> None:
    for host in ("a", "b"):
        made.before.append(decoy(host, "172.17.0.1/16"))
        made.env[host]["GLOO_SOCKET_IFNAME"] = "docker0"


@fault(
    "gloo",
    "interface with an unroutable address on b",
    "socket-ifname-wrong",
    node="b",
    rank=1,
    stages=MESH,
    quick=True,
)
@fault("nodes", "interface with an unroutable address on b", "socket-ifname-wrong", node="b", rank=1, stages=MESH)
def decoy_address(made: Bench) -> None:
    made.before.append(decoy("b", "10.5.0.1/24", "mgmt0"))
    made.env["b"]["GLOO_SOCKET_IFNAME"] = "mgmt0"


@fault("gloo", "host names resolve to loopback", "hostname-resolves-to-loopback", quick=True)
@fault("nodes", "host names resolve to loopback", "hostname-resolves-to-loopback")
def name_is_loopback(made: Bench) -> None:
    for host in ("a", "b"):
        table = made.hosts.folder / f"{host}.hosts"
        table.write_text(re.sub(rf"^\S+ {host}$", f"127.0.1.1 {host}", table.read_text(), flags=re.M))
        made.env[host]["GLOO_SOCKET_IFNAME"] = None
        if made.shape == "gloo":
            made.master[host] = made.hosts["a"].address


@fault("nodes", "VLLM_HOST_IP=127.0.0.1 on a", "node-ip-wrong-interface", node="a", rank=0)
def host_ip_a(made: Bench) -> None:
    made.env["a"]["VLLM_HOST_IP"] = "127.0.0.1"


@fault("nodes", "VLLM_HOST_IP=127.0.0.1 on b", "node-ip-wrong-interface", node="b", rank=1, quick=True)
def host_ip_b(made: Bench) -> None:
    made.env["b"]["VLLM_HOST_IP"] = "127.0.0.1"


@fault("nodes", "VLLM_HOST_IP of another machine on a", "node-ip-wrong-interface", node="a", quick=True)
def host_ip_foreign(made: Bench) -> None:
    made.env["a"]["VLLM_HOST_IP"] = "172.31.9.9"
