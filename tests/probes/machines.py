"""COMPOSED machines with ConnectX cards and data-centre GPUs, as captured trees: what no machine here can show.

Written after the kernel's ABI documents and what nvidia-smi prints; no capture of a real machine.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from ncdiag import registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Recorded
from ncdiag.model import Finding, Plan, Snapshot
from ncdiag.tree import MemoryTree

USUAL_GIDS = (("fe80::1", 1), ("fe80::1", 2), ("::ffff:192.0.2.1", 1), ("::ffff:192.0.2.1", 2))


class Machine:
    """A tree that grows; `snapshot` judges it."""

    def __init__(self, name: str = "node1") -> None:
        self.tree = MemoryTree()
        self.meta: dict[str, Any] = {
            "node": name,
            "environ": {},
            "errors": {},
            "commands": {},
            "exits": {},
            "answers": {},
            "stat": {},
            "modes": {},
        }
        for folder in ("/sys/class/net", "/sys/bus/pci/devices", "/sys/module/ib_core", "/proc/self"):
            self.tree.add_folder(folder)
        self.file("/proc/version", "Linux version 6.8.0-45-generic (buildd@x) #45 SMP")

    def file(self, path: str, text: str) -> Machine:
        self.tree.add_file(path, text.encode())
        return self

    def bytes(self, path: str, content: bytes) -> Machine:
        self.tree.add_file(path, content)
        return self

    def environ(self, **variables: str) -> Machine:
        self.meta["environ"].update(variables)
        return self

    def command(self, argv: str, output: str, rc: int = 0) -> Machine:
        name = f"c{len(self.meta['commands'])}"
        self.meta["commands"][name], self.meta["exits"][name] = argv, rc
        return self.file(f"/cmd/{name}", output)

    def stat(self, path: str, kind: str = "character", mode: int = 0o666) -> Machine:
        self.meta["stat"][path] = {"kind": kind, "mode": mode, "uid": 0, "gid": 0, "size": 0}
        return self

    # the PCI tree

    def function(
        self,
        address: str,
        parents: Sequence[str] = (),
        *,
        pci_class: str,
        vendor: str = "0x15b3",
        device: str = "0x1021",
        numa: int = 0,
        speed: float = 32.0,
        max_speed: float | None = None,
        width: int = 16,
        max_width: int = 16,
        driver: str | None = None,
        acs: int | None = None,
        group: int | None = None,
    ) -> str:
        """The folder of the function. `acs`: control word, -1 for a device without the capability, None: not readable."""
        root = f"/sys/devices/pci{(parents[0] if parents else address)[:7]}"
        base = "/".join([root, *parents, address])
        if f"{base}/class" in self.tree.files:
            return base
        values = {
            "class": pci_class,
            "vendor": vendor,
            "device": device,
            "subsystem_vendor": vendor,
            "subsystem_device": "0x0001",
            "numa_node": str(numa),
            "current_link_speed": f"{speed:.1f} GT/s PCIe",
            "max_link_speed": f"{max_speed or speed:.1f} GT/s PCIe",
            "current_link_width": str(width),
            "max_link_width": str(max_width),
        }
        for name, value in values.items():
            self.file(f"{base}/{name}", value + "\n")
        self.bytes(f"{base}/config", configuration(acs))
        if driver:
            self.tree.add_link(f"{base}/driver", f"/sys/bus/pci/drivers/{driver}")
        if group is not None:
            self.tree.add_link(f"{base}/iommu_group", f"/sys/kernel/iommu_groups/{group}")
        self.tree.add_link(f"/sys/bus/pci/devices/{address}", base)
        return base

    def switch(self, bus: int, numa: int = 0, acs: int | None = -1) -> tuple[list[str], list[str]]:
        """Parents of the two functions below a root port and a switch: for a GPU, for a card."""
        root, up = f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0"
        downs = [f"0000:{bus + 2:02x}:0{i}.0" for i in range(2)]
        self.function(root, [], pci_class="0x060400", vendor="0x8086", numa=numa, acs=acs)
        self.function(up, [root], pci_class="0x060400", vendor="0x1000", numa=numa, acs=-1 if acs is not None else None)
        for down in downs:
            self.function(down, [root, up], pci_class="0x060400", vendor="0x1000", numa=numa, acs=acs)
        return [root, up, downs[0]], [root, up, downs[1]]

    # devices

    def card(
        self,
        name: str,
        address: str,
        parents: Sequence[str] = (),
        *,
        state: str = "4: ACTIVE",
        phys: str = "5: LinkUp",
        rate: str = "400 Gb/sec (4X NDR)",
        layer: str = "InfiniBand",
        gids: Iterable[tuple[str, int]] = (),
        netdev: str = "",
        board: str = "MT_0000000838",
        verbs: int | None = None,
        sm_lid: str = "0x1",
        mtu: int = 9000,
        **pci: Any,
    ) -> Machine:
        base = self.function(address, parents, pci_class="0x020700", **{"driver": "mlx5_core", **pci})
        device = f"{base}/infiniband/{name}"
        self.file(f"{device}/node_type", "1: CA").file(f"{device}/board_id", board).file(
            f"{device}/fw_ver", "28.39.1002"
        )
        self.file(f"{device}/sys_image_guid", f"0000:0000:0000:{len(self.tree.files) % 65536:04x}")
        self.tree.add_link(f"{device}/device", base)
        self.tree.add_link(f"/sys/class/infiniband/{name}", device)
        port = f"{device}/ports/1"
        for file, value in (
            ("state", state),
            ("phys_state", phys),
            ("rate", rate),
            ("link_layer", layer),
            ("lid", "0x5"),
            ("sm_lid", sm_lid),
        ):
            self.file(f"{port}/{file}", value + "\n")
        entries = list(gids or (USUAL_GIDS if layer == "Ethernet" else ()))
        for index, (address_text, version) in enumerate(entries):
            self.gid(port, index, address_text, version, netdev)
        if netdev:
            self.file(f"{base}/net/{netdev}/mtu", str(mtu))
            self.file(f"{base}/net/{netdev}/operstate", "up")
            self.tree.add_link(f"/sys/class/net/{netdev}", f"{base}/net/{netdev}")
        number = (
            len([path for path in self.tree.links if path.startswith("/sys/class/infiniband/")]) - 1
            if verbs is None
            else verbs
        )
        self.file(f"/sys/class/infiniband_verbs/uverbs{number}/ibdev", name)
        return self

    def gid(self, port: str, index: int, address: str, version: int, netdev: str) -> None:
        import ipaddress

        self.file(f"{port}/gids/{index}", ipaddress.IPv6Address(address).exploded)
        self.file(f"{port}/gid_attrs/types/{index}", "RoCE v2" if version == 2 else "IB/RoCE v1")
        if netdev:
            self.file(f"{port}/gid_attrs/ndevs/{index}", netdev)

    def counter(self, name: str, counter: str, value: int | str, folder: str = "hw_counters") -> Machine:
        return self.file(
            f"/sys/class/infiniband/{name}/ports/1/{folder}/{counter}".replace(
                f"/sys/class/infiniband/{name}", self.tree.links[f"/sys/class/infiniband/{name}"]
            ),
            f"{value}\n",
        )

    def gpu(self, address: str, parents: Sequence[str] = (), **pci: Any) -> Machine:
        self.function(
            address,
            parents,
            pci_class="0x030200",
            **{"vendor": "0x10de", "device": "0x2330", "driver": "nvidia", **pci},
        )
        return self

    def driver(self, *, open_modules: bool = True, peermem: bool = False, version: str = "570.86.15") -> Machine:
        kind = "NVIDIA UNIX Open Kernel Module for x86_64" if open_modules else "NVIDIA UNIX x86_64 Kernel Module"
        self.file("/proc/driver/nvidia/version", f"NVRM version: {kind}  {version}  Release Build\n")
        self.file("/sys/module/nvidia/version", version)
        if peermem:
            self.file("/sys/module/nvidia_peermem/version", version)
        return self

    def host(self) -> Recorded:
        self.file("/META.json", json.dumps(self.meta))
        return Recorded(self.tree)


def configuration(acs: int | None) -> bytes:
    """Configuration space: 64 bytes without root, else 4096 with an ACS capability at 0x100, or an empty chain."""
    if acs is None:
        return bytes(64)
    space = bytearray(4096)
    if acs >= 0:
        struct.pack_into("<IHH", space, 0x100, 0x000D | 1 << 16, 0x7F, acs)
    return bytes(space)


def eight_rails(name: str = "node1", *, without: Iterable[int] = (), down: Iterable[int] = (), **card: Any) -> Machine:
    """Eight switches with one GPU and one card each, on two sockets."""
    machine = Machine(name).driver()
    for i in range(8):
        gpu, nic = machine.switch(0x10 + 4 * i, numa=i // 4)
        machine.gpu(f"0000:{0x13 + 4 * i:02x}:00.0", gpu, numa=i // 4)
        if i not in set(without):
            port: dict[str, Any] = {"state": "1: DOWN", "phys": "2: Polling"} if i in set(down) else {}
            machine.card(f"mlx5_{i}", f"0000:{0x13 + 4 * i:02x}:01.0", nic, numa=i // 4, **port, **card)
    return machine


def judged(probe: str, *machines: Machine, plan: Plan | None = None, also: Sequence[str] = ()) -> list[Finding]:
    """The findings of one probe over these machines; `also`: further probes whose facts are collected."""
    snapshot = Snapshot(plan=plan or Plan())
    everything = registry.load()
    for machine in machines:
        node = collect(machine.host(), everything.sources([probe, *also]))
        assert not any("Error" in reason.split(":")[0] for reason in node.errors.values()), node.errors
        snapshot.nodes[node.node] = node
    return check(snapshot, everything.chosen([probe]))


def statuses(findings: Iterable[Finding]) -> list[str]:
    return sorted(finding.status.value for finding in findings)


def graver(findings: Iterable[Finding]) -> list[Finding]:
    """Warnings and failures; each names cause, remedy and source."""
    found = [finding for finding in findings if finding.status.value in ("warn", "fail")]
    for finding in found:
        assert finding.cause and finding.remedy and finding.source, finding
    return found
