"""Topology dumps of machines that cannot be had here. COMPOSED: written after NCCL's format, no capture of a real machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable

INTEL = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"'
AMD = 'arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="17"'
GRACE = 'arch="arm64"'


def system(cpus: Iterable[str]) -> str:
    return '<system version="1">\n' + "".join(cpus) + "</system>\n"


def cpu(numa: int, inside: Iterable[str], kind: str = INTEL) -> str:
    body = "".join(inside)
    return f'  <cpu host_hash="0x10" numaid="{numa}" affinity="ffffffff" {kind}>\n{body}  </cpu>\n'


def bridge(busid: str, inside: Iterable[str], ids: str = "", width: int = 16, speed: str = "32.0 GT/s PCIe") -> str:
    body = "".join(inside)
    return f'    <pci busid="{busid}" class="0x060400" {ids} link_speed="{speed}" link_width="{width}">\n{body}    </pci>\n'


def gpu(
    busid: str,
    dev: int,
    *,
    sm: int = 90,
    gdr: int = 1,
    nvlinks: int = 18,
    c2c: str = "",
    width: int = 16,
    peers: Iterable[tuple[str, int]] = (),
    speed: str = "32.0 GT/s PCIe",
) -> str:
    links = f'        <nvlink target="fffffff:ffff:ff" count="{nvlinks}" tclass="0x068000"/>\n' if nvlinks else ""
    links += "".join(
        f'        <nvlink target="{target}" count="{count}" tclass="0x030200"/>\n' for target, count in peers
    )
    return (
        f'      <pci busid="{busid}" class="0x030200" vendor="0x10de" device="0x2330" link_speed="{speed}" link_width="{width}">\n'
        f'        <gpu dev="{dev}" sm="{sm}" rank="{dev}" gdr="{gdr}">\n{links}{c2c}        </gpu>\n      </pci>\n'
    )


def nic(
    busid: str,
    dev: int,
    *,
    name: str = "",
    speed: int = 400000,
    gdr: int = 1,
    width: int = 16,
    guid: int = 0,
    rate: str = "32.0 GT/s PCIe",
) -> str:
    return (
        f'      <pci busid="{busid}" class="0x020700" vendor="0x15b3" device="0x1021" link_speed="{rate}" link_width="{width}">\n'
        f"        <nic>\n{net(dev, name=name, speed=speed, gdr=gdr, guid=guid)}        </nic>\n      </pci>\n"
    )


def net(dev: int, *, name: str = "", speed: int = 400000, gdr: int = 1, guid: int = 0) -> str:
    return (
        f'          <net name="{name or f"mlx5_{dev}"}" dev="{dev}" speed="{speed}" port="1" latency="0.000000" '
        f'guid="0x{guid or 0x5000 + dev:x}" maxconn="262144" gdr="{gdr}"/>\n'
    )


def eight_rails(nic_of: Callable[[int], str] | None = None, gpu_of: Callable[[int], str] | None = None) -> str:
    """Two sockets, four switches each with one GPU and one 400 Gb/s NIC, NVSwitch between the GPUs."""
    nics = nic_of or (lambda i: nic(f"0000:{0x10 + 16 * i:02x}:01.0", i))
    gpus = gpu_of or (lambda i: gpu(f"0000:{0x10 + 16 * i:02x}:00.0", i))
    sockets = []
    for numa in (0, 1):
        sockets.append(
            cpu(
                numa,
                (bridge(f"0000:{0x0F + 16 * i:02x}:00.0", [gpus(i), nics(i)]) for i in range(4 * numa, 4 * numa + 4)),
            )
        )
    return system(sockets)


def flat_cloud() -> str:
    """A VM without switches and NUMA information: all behind the host bridge."""
    devices = [gpu(f"0000:0{i}:00.0", i, nvlinks=0, sm=80) for i in range(1, 5)]
    return system([cpu(-1, [*devices, *(nic(f"0000:1{i}:00.0", i, speed=100000) for i in range(4))], AMD)])


def no_nic() -> str:
    return system([cpu(0, [gpu("0000:01:00.0", 0, nvlinks=0, sm=89), gpu("0000:41:00.0", 1, nvlinks=0, sm=89)], AMD)])


def other_socket() -> str:
    """One GPU on each socket, the only NIC under the second."""
    return system(
        [
            cpu(0, [bridge("0000:0f:00.0", [gpu("0000:10:00.0", 0, nvlinks=0)])]),
            cpu(1, [bridge("0000:8f:00.0", [gpu("0000:90:00.0", 1, nvlinks=0), nic("0000:91:00.0", 0)])]),
        ]
    )


def merged_nics() -> str:
    """Dual-port cards whose two ports NCCL 2.20 to 2.23 merged into one device."""
    cards = [
        bridge(
            f"0000:{0x10 * (i + 1):02x}:00.0",
            [
                gpu(f"0000:{0x10 * (i + 1):02x}:01.0", i, nvlinks=0, sm=80),
                nic(f"0000:{0x10 * (i + 1):02x}:02.0", i, name=f"mlx5_{2 * i}+mlx5_{2 * i + 1}", speed=200000),
            ],
        )
        for i in range(2)
    ]
    return system([cpu(0, cards)])


def one_gpu() -> str:
    """A communicator of one GPU: the dump holds no other."""
    return system([cpu(0, [bridge("0000:0f:00.0", [gpu("0000:10:00.0", 0, nvlinks=0), nic("0000:11:00.0", 0)])])])


def grace(count: int = 2) -> str:
    """Grace CPUs with one GPU each by C2C, the NIC at the CPU's own host bridge."""
    c2c = '        <c2c bw="44000" count="10"/>\n'
    return system(
        cpu(
            numa,
            [
                gpu(f"000{8 + numa}:01:00.0", numa, nvlinks=0, c2c=c2c, sm=100),
                nic(f"000{numa}:03:00.0", numa),
            ],
            GRACE,
        )
        for numa in range(count)
    )


def mesh_of_four() -> str:
    """Four GPUs joined in a ring by NVLink, so that opposite ones need a GPU in between."""
    bus = [f"0000:{i + 1}0:00.0" for i in range(4)]
    return system(
        [
            cpu(
                0,
                [
                    bridge(
                        f"0000:{i + 1}f:00.0",
                        [gpu(bus[i], i, nvlinks=0, sm=80, peers=[(bus[(i + 1) % 4], 4), (bus[(i - 1) % 4], 4)])],
                    )
                    for i in range(4)
                ],
            )
        ]
    )
