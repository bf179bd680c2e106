"""Ranks that NCCL takes for several hosts and that look like containers on one Docker bridge, which is on one machine.

Source: Docker's default address pools (172.17.0.0/16 to 172.30.0.0/16, containers from .2 on, interface eth0); a bridge network does not leave its host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from ncdiag.explain import Says, Signal
from ncdiag.model import Evidence
from ncdiag.nccl.log_facts import NcclFacts

BRIDGES = range(17, 31)  # second numbers of the pools; 172.31 is a cloud's own default
FIRST = 64  # addresses of a bridge that are given first


def bridged(signals: Sequence[Signal], facts: NcclFacts) -> Iterator[Signal]:
    """One for the first such communicator. Some networks of real machines have such addresses, too.

    Changes signals: inside one machine nobody needs RDMA.
    """
    for comm in facts.communicators:
        processes = [facts.processes[rank.process] for rank in comm.ranks]
        hosts = {process.host for process in processes}
        bridges = {_bridge(process.bootstrap_address) for process in processes}
        if (
            len(hosts) < 2
            or len(bridges) != 1
            or None in bridges
            or {process.bootstrap_interface for process in processes} != {"eth0"}
            or {process.network for process in processes} != {"Socket"}
        ):
            continue
        for signal in signals:
            if signal.cause == "rdma-unavailable":
                signal.says = min(signal.says, Says.HINT)
        lines = [line for process in processes[:3] if (line := process.evidence.get("bootstrap")) is not None]
        yield Signal(
            "container-isolation",
            Says.HINT,
            f"{len(hosts)} hosts have eth0 addresses as of one Docker bridge ({', '.join(str(process.bootstrap_address) for process in processes[:3])}): if they are containers of one machine, NCCL takes the network between its GPUs",
            [Evidence(line.source, line.text.strip(), line.line) for line in lines],
            condition=True,
            order=0.0,
            remedy="one container with all GPUs that the job uses there; or network_mode: host, ipc: host and the same NCCL_HOSTID for both, all GPUs visible in each",
        )
        return


def _bridge(address: str | None) -> str | None:
    """The network of an address that Docker gives; None where it is none."""
    try:
        numbers = ipaddress.IPv4Address((address or "").partition(":")[0]).packed
    except ValueError:
        return None
    like = numbers[0] == 172 and numbers[1] in BRIDGES and numbers[2] == 0 and 2 <= numbers[3] < FIRST
    return f"172.{numbers[1]}" if like else None
