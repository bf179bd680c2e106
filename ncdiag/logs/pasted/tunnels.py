"""`ip -br addr` and `ip addr` beside a job's rendez-vous: an address of a VPN's tunnel, where the nodes share a network of their own.

Sources: iproute2 5 and 6; names that Tailscale, WireGuard, ZeroTier, Nebula, OpenVPN and PPP give their interfaces.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line

_TUNNEL = re.compile(r"^(?:tailscale\d*|wg\w*\d|zt\w{6,}|nebula\d*|u?tun\d+|ppp\d+|ipsec\d+|netbird\w*|wt\d+)$")
_VIRTUAL = re.compile(r"^(?:lo|docker|br-|virbr|veth|cni|flannel|cali|kube-|podman|lxc)")
_BRIEF = re.compile(r"^(?P<name>[\w.@-]{1,32})\s+(?:UP|UNKNOWN)\s+(?P<addresses>\d+\.\d+\.\d+\.\d+/\d+.*)$")
_LONG = re.compile(r"^\s+inet (?P<address>\d+\.\d+\.\d+\.\d+/\d+)\b.*\b(?P<name>[\w.@-]+)$")
_USED = re.compile(r"Using (?:\[\d+\])?(?P<name>[\w.-]+):(?P<address>\d+\.\d+\.\d+\.\d+)<")
_MEETS = re.compile(
    r"(?:distributed_init_method=tcp://|master_addr(?:ess)?[='\": ]+|MASTER_ADDR=|cluster at address:? |node[ _-]ip[ _-]address[=:\s'\"]+|--address[= ])(?P<address>\d+\.\d+\.\d+\.\d+)"
)
_CIDR = re.compile(r"\d+\.\d+\.\d+\.\d+/\d+")
LIMIT = 4096  # addresses kept


class Tunnels:
    """Addresses of tunnels, of other interfaces, and of rendez-vous."""

    triggers = (" UP  ", " UNKNOWN  ", "    inet ", "Bootstrap: Using ", "Bootstrap : Using ", "NET/Socket : Using ", "distributed_init_method=tcp", "master_addr", "MASTER_ADDR=", "cluster at address", "node_ip_address", "node-ip-address", "--address")  # fmt: skip

    def __init__(self) -> None:
        self._tunnels: dict[str, tuple[str, Line]] = {}
        """Address -> interface, and where."""
        self._others: dict[ipaddress.IPv4Interface, tuple[str, Line]] = {}
        self._meets: dict[str, Line] = {}

    def take(self, line: Line) -> bool:
        text = line.text
        brief, long = _BRIEF.match(text), _LONG.match(text)
        for name, address in (
            [(brief["name"], found) for found in _CIDR.findall(brief["addresses"])[:8]]
            if brief
            else [(long["name"], long["address"])]
            if long
            else []
        ):
            self._keep(name.partition("@")[0], address, line)
        for used in _USED.finditer(text):
            if _TUNNEL.match(used["name"]) and len(self._tunnels) < LIMIT:
                self._tunnels.setdefault(used["address"], (used["name"], line))
        for meets in _MEETS.finditer(text):
            if len(self._meets) < LIMIT:
                self._meets.setdefault(meets["address"], line)
        return False

    def _keep(self, name: str, address: str, line: Line) -> None:
        try:
            interface = ipaddress.IPv4Interface(address)
        except ValueError:
            return
        if _TUNNEL.match(name) and len(self._tunnels) < LIMIT:
            self._tunnels.setdefault(str(interface.ip), (name, line))
        elif not _VIRTUAL.match(name) and len(self._others) < LIMIT:
            self._others.setdefault(interface, (name, line))

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        address = next((address for address in self._meets if address in self._tunnels), None)
        if address is None:
            return
        name, line = self._tunnels[address]
        shared = self._shared()
        yield Signal(
            "node-ip-wrong-interface",
            Says.STRONG if shared else Says.HINT,
            f"the ranks meet at {address}, the address of the tunnel {name}"
            + (
                f", although the nodes share the network {shared[0].network} ({self._others[shared[0]][0]})"
                if shared
                else ""
            ),
            [self._meets[address].evidence(), line.evidence(), *(self._others[one][1].evidence() for one in shared)],
            {"interface": name, "peer": address},
            condition=True,
            order=line.order,
            remedy="start all nodes with their addresses on the network that they share: ray start --node-ip-address, VLLM_HOST_IP, --master-addr, and NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME of its interface",
        )

    def _shared(self) -> list[ipaddress.IPv4Interface]:
        """Two addresses of one network, each on an interface that is no tunnel."""
        seen: dict[ipaddress.IPv4Network, ipaddress.IPv4Interface] = {}
        for one in self._others:
            other = seen.setdefault(one.network, one)
            if other.ip != one.ip and one.network.prefixlen < 32:
                return [other, one]
        return []
