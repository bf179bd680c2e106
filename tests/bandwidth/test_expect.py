"""Expectation from NCCL's own log and topology dump: NVLink, shared memory, two NICs, one node without GPUDirect."""

from __future__ import annotations

from ncdiag.bandwidth.expect import expect
from ncdiag.bandwidth.job import Job, Outcome, Place, RankOutcome

GPU = '<pci busid="0000:0{n}:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="{n}" sm="90" rank="{n}" gdr="1">{nvlink}</gpu></pci>'
NVLINK = '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>'
NIC = '<pci busid="0000:1{n}:00.0" class="0x020700"><nic><net name="mlx5_{n}" dev="{n}" speed="400000" port="1" guid="0x{n}" maxconn="9" gdr="1"/></nic></pci>'


def topology(nvlink: bool = True, nics: int = 0) -> str:
    gpus = "".join(GPU.format(n=number, nvlink=NVLINK if nvlink else "") for number in range(2))
    cards = "".join(NIC.format(n=number) for number in range(nics))
    return f'<system version="1"><cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">{gpus}{cards}</cpu></system>'


def log(host: str, pid: int, rank: int, lines: list[str], network: str = "Socket") -> bytes:
    head = f"{host}:{pid}:{pid} [0] NCCL INFO "
    start = (
        f"ncclCommInitRank comm 0x{rank + 1}00 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 7000 commId 0xabc - Init "
    )
    every = [f"Using network {network}", start + "START", *lines, start + "COMPLETE"]
    return "".join(head + line + "\n" for line in every).encode()


def outcome(logs: list[bytes], dumps: list[str]) -> Outcome:
    ranks = [RankOutcome(Place(0, number)) for number in range(len(logs))]
    for rank, text, dump in zip(ranks, logs, dumps, strict=True):
        rank.log, rank.topology = text, dump
    return Outcome(Job([], {}), ranks)


def inside(via: str) -> list[bytes]:
    return [
        log("gpu01", 10 + rank, rank, [f"Channel 00/0 : {rank}[{rank}] -> {1 - rank}[{1 - rank}] via {via}"])
        for rank in range(2)
    ]


def test_nvlink() -> None:
    found = expect(outcome(inside("P2P/CUMEM"), [topology(), ""]), ["gpu01", "gpu01"], {})
    assert found.busbw_gbytes_s is not None
    assert (round(found.busbw_gbytes_s, 1), found.bound, found.chosen) == (370.8, "18 NVLinks", "P2P/CUMEM")
    assert [term.source != "" for term in found.terms] == [True] * 3


def test_shared_memory_beside_nvlink_is_remarked() -> None:
    found = expect(outcome(inside("SHM/direct/direct"), [topology(), ""]), ["gpu01", "gpu01"], {})
    assert found.busbw_gbytes_s == 48.0 * 0.6
    assert found.causes[0][0] == "p2p-broken"


def across(gdr: tuple[str, str]) -> list[bytes]:
    using = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:192.0.2.1<0>"
    return [
        log(
            f"gpu0{rank + 1}",
            10,
            rank,
            [
                using,
                *(
                    f"Channel 0{nic}/0 : {rank}[0] -> {1 - rank}[0] [send] via NET/IB/{nic}{gdr[rank]}"
                    for nic in range(2)
                ),
            ],
            "IB",
        )
        for rank in range(2)
    ]


def test_two_nics_and_a_node_without_gpudirect() -> None:
    found = expect(outcome(across(("/GDRDMA", "")), [topology(nics=2)] * 2), ["gpu01", "gpu02"], {})
    assert found.busbw_gbytes_s is not None
    assert (round(found.busbw_gbytes_s), found.bound) == (97, "2×400 Gb/s")
    assert found.remarks == ["NET/IB without GDR on gpu02"]
    assert found.causes == [("gdr-disabled", "gpu02", "NET/IB without GDR on gpu02")]


def sockets() -> list[bytes]:
    using = "NET/Socket : Using [0]eth0:192.0.2.1<0>"
    return [
        log(f"gpu0{rank + 1}", 10, rank, [using, f"Channel 00/0 : {rank}[0] -> {1 - rank}[0] [send] via NET/Socket/0"])
        for rank in range(2)
    ]


def test_sockets_take_the_interface_and_its_mtu() -> None:
    link = {"links": {"eth0": {"speed": 100000, "mtu": 9000, "virtual": False}}, "hcas": ["mlx5_0"]}
    found = expect(outcome(sockets(), ["", ""]), ["gpu01", "gpu02"], {"gpu01": link, "gpu02": link})
    assert found.busbw_gbytes_s is not None and round(found.busbw_gbytes_s, 2) == 12.38
    assert {cause for cause, _, _ in found.causes} == {"net-fallback-slow"}


def test_a_virtual_interface_has_no_rate() -> None:
    found = expect(
        outcome(sockets(), ["", ""]),
        ["gpu01", "gpu02"],
        {"gpu01": {"links": {"eth0": {"speed": 10000, "virtual": True}}}},
    )
    assert found.busbw_gbytes_s is None and "virtual" in found.why


def test_no_log_no_expectation() -> None:
    assert "no communicator" in expect(outcome([b""], [""]), ["gpu01"], {}).why
