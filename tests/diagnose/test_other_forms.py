"""Causes that show themselves in other forms than their usual message: tables, environments and listings of several nodes."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause


def causes(*lines: str) -> list[Cause]:
    raw = "\n".join([*lines, ""]).encode()
    return of_streams([Stream("job.log", iter([raw]), raw)]).verdict.causes


def firsts(found: list[Cause]) -> tuple[str, str]:
    return found[0].cause, found[0].confidence


TABLE = "State     Recv-Q Send-Q      Local Address:Port       Peer Address:Port  Process"
PYTHON = 'users:(("python3",pid={},fd=7))'
STORE = f"ESTAB     0      0              192.0.2.21:29500        192.0.2.22:41906  {PYTHON.format(18)}"
LISTENS = f"LISTEN    0      16384          172.20.0.1:38411           0.0.0.0:*      {PYTHON.format(18)}"
TO_ITSELF = f"ESTAB     0      0              172.20.0.1:38411        172.20.0.1:60114  {PYTHON.format(18)}"
TO_OTHERS = f"ESTAB     0      0              172.20.0.1:38411        192.0.2.23:60114  {PYTHON.format(18)}"
DIALS = f"SYN-SENT  0      1              192.0.2.22:50554        172.20.0.1:38411  {PYTHON.format(20)}"


def test_a_listener_at_an_address_that_only_its_own_node_reaches() -> None:
    assert firsts(causes(TABLE, LISTENS, STORE, TO_ITSELF, "", TABLE, DIALS)) == ("socket-ifname-wrong", "likely")
    assert causes(TABLE, LISTENS, STORE, TO_OTHERS, "", TABLE, DIALS)[0].cause == "bootstrap-blocked-firewall"


def environs(host: str, first: int, group: int, world: int) -> list[str]:
    command = f"{host}$ for p in $(pgrep -f train.py); do tr '\\0' '\\n' </proc/$p/environ | grep -E '^(RANK|WORLD_SIZE)=' | paste -sd' '; done"
    return [command] + [
        f"{first * 10 + local} GROUP_RANK={group} LOCAL_RANK={local} RANK={first + local} WORLD_SIZE={world}"
        for local in range(2)
    ]


def test_two_hosts_whose_ranks_are_the_same() -> None:
    found = causes(*environs("sable-1", 0, 0, 4), *environs("sable-2", 0, 0, 4))
    assert firsts(found) == ("rank-layout-wrong", "likely") and "none is rank 2, 3" in found[0].summary
    for fine in (
        [*environs("sable-1", 0, 0, 4), *environs("sable-2", 2, 1, 4)],
        [*environs("sable-1", 0, 0, 2), *environs("sable-2", 0, 0, 2)],  # two jobs
        [*environs("sable-1", 0, 0, 4), *environs("sable-1", 0, 0, 4)],  # children have their parents' environment
    ):
        assert "rank-layout-wrong" not in [cause.cause for cause in causes(*fine)]


def start(rank: int, bus: str, stage: str, host: str = "onyx7", address: str = "192.0.2.7") -> list[str]:
    return [
        f"{host}:641{rank}:641{rank} [0] NCCL INFO Bootstrap: Using eth0:{address}<0>",
        f"{host}:641{rank}:642{rank} [0] NCCL INFO ncclCommInitRank comm 0x7f{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId {bus} commId 0x3f98 - Init {stage}",
    ]


def test_two_ranks_of_one_gpu_whose_communicator_does_not_come_up() -> None:
    found = causes(*start(0, "5e000", "START"), *start(1, "5e000", "START"))
    assert firsts(found) == ("duplicate-gpu", "likely") and found[0].where["node"] == "onyx7"
    for other in (
        [*start(0, "5e000", "START"), *start(1, "86000", "START")],
        [*start(0, "5e000", "COMPLETE"), *start(1, "5e000", "COMPLETE")],
        [*start(0, "5e000", "START"), *start(1, "5e000", "START", address="192.0.2.8")],
    ):
        assert "duplicate-gpu" not in [cause.cause for cause in causes(*other)]


LISTED = [
    f"ibp{number}s0 4: ACTIVE 400 Gb/sec (4X NDR) InfiniBand" for number in (24, 64)
]  # of a loop over /sys/class/infiniband
WORKS = "# Avg bus bandwidth    : 2.71"


def test_a_list_of_devices_that_takes_none() -> None:
    found = causes("NCCL_IB_HCA=mlx5", *LISTED, WORKS)
    assert firsts(found) == ("rdma-unavailable", "likely") and "ibp24s0, ibp64s0" in found[0].summary
    for chosen in ("NCCL_IB_HCA=ibp", "NCCL_IB_HCA=^mlx5", "NCCL_IB_HCA==ibp24s0:1", ""):
        assert causes(chosen, *LISTED, WORKS)[0].cause == "healthy"


def rows(mask: str, before: str) -> list[str]:
    command = "$ pdsh -w gannet[1-2] nvidia-smi --query-gpu=index,utilization.gpu,clocks.sm,clocks_event_reasons.active --format=csv,noheader"
    return [command, f"{before}0, 100 %, 1980 MHz, 0x0000000000000004", f"{before}1, 100 %, 645 MHz, {mask}"]


@pytest.mark.parametrize("before", ["gannet2: ", ""])
def test_a_mask_of_reasons_that_hold_the_clock(before: str) -> None:
    found = causes(*rows("0x0000000000000088", before))
    assert found[0].cause == "gpu-throttled" and "hw_power_brake_slowdown" in found[0].summary
    assert found[0].where == ({"node": "gannet2", "device": "1"} if before else {"device": "1"})
    for mask in ("0x0000000000000001", "0x0000000000000016", "[N/A]"):
        assert "gpu-throttled" not in [cause.cause for cause in causes(*rows(mask, before))]


def test_no_directory_for_temporary_files() -> None:
    error = "[rank24]: FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp', '/usr/tmp', '/w']"
    assert firsts(causes("[rank24]: Traceback (most recent call last):", error)) == ("disk-full", "likely")


def test_an_address_of_a_bridge_as_a_nodes_own() -> None:
    waits = "INFO 03-11 08:14:02 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds."
    for address in ("192.168.122.1", "172.17.0.1"):
        assert "node-ip-wrong-interface" in [cause.cause for cause in causes(f"VLLM_HOST_IP={address}", waits)]
    assert "node-ip-wrong-interface" not in [cause.cause for cause in causes("VLLM_HOST_IP=192.0.2.7", waits)]


def test_a_gpu_without_work_may_have_a_slow_link() -> None:
    command = "$ nvidia-smi --query-gpu=index,pstate,pcie.link.gen.current,pcie.link.gen.max,clocks_event_reasons.active --format=csv,noheader"
    assert causes(command, "0, P0, 1, 5, 0x0000000000000000")[0].cause == "pcie-degraded"
    assert "pcie-degraded" not in [cause.cause for cause in causes(command, "0, P0, 1, 5, 0x0000000000000001")]


def test_a_device_that_fell_off_the_bus() -> None:
    gpu = "cb:00.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 80GB] (rev {})"
    card = "5e:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7] (rev ff)"
    found = causes(gpu.format("ff"))
    assert firsts(found) == ("gpu-hardware-fault", "likely") and found[0].where["device"] == "cb:00.0"
    assert causes(card)[0].cause == "ib-link-or-hca-fault"
    assert "gpu-hardware-fault" not in [cause.cause for cause in causes(gpu.format("a1"))]
    lost = "Unable to determine the device handle for gpu 0000:CB:00.0: Unknown Error"
    assert causes(lost)[0].cause == "gpu-hardware-fault"


def sizes(host: str, *numbers: int) -> list[str]:
    rows = [f"{number} model-0001{index}-of-00030.safetensors" for index, number in enumerate(numbers)]
    return [f"{host}$ stat -c '%s %n' model-0001*.safetensors", *rows]


def test_weight_files_of_two_hosts() -> None:
    found = causes(*sizes("gx1", 4966188864, 4664134408, 4995584424), *sizes("gx2", 4966188864, 4664134408, 2147479552))
    assert firsts(found) == ("weights-corrupt", "likely") and found[0].where == {"node": "gx2"}
    assert "2147479552" in found[0].summary and "model-00012" in found[0].summary
    listed = "-rw-r--r-- 1 svc svc {} Aug  1 10:00 model-00010-of-00030.safetensors"
    whole = "-rw-r--r-- 1 svc svc 7 Aug  1 10:00 model-00011-of-00030.safetensors"
    found = causes("gx1$ ls -l", listed.format(4966188864), whole, "gx2$ ls -l", listed.format(512), whole)
    assert found[0].cause == "weights-corrupt"
    for fine in (
        [*sizes("gx1", 1, 2, 3), *sizes("gx2", 1, 2, 3)],
        [*sizes("gx1", 1, 2, 3), *sizes("gx1", 1, 2, 2)],  # the same host, at another time
        [*sizes("gx1", 1, 2, 3), *sizes("gx2", 4, 5, 6)],  # another model
    ):
        assert "weights-corrupt" not in [cause.cause for cause in causes(*fine)]


def test_heads_that_do_not_divide() -> None:
    config, arguments = '  "num_attention_heads": 28,', '["--model=/models/q","--tensor-parallel-size={}"]'
    found = causes(config, arguments.format(8))
    assert firsts(found) == ("tp-not-dividing", "likely") and "28" in found[0].summary and "2, 4, 7" in found[0].remedy
    for lines in ([config, arguments.format(4)], [config], [config, arguments.format(8), "# Avg bus bandwidth : 90.1"]):
        assert "tp-not-dividing" not in [cause.cause for cause in causes(*lines)]


def summary(pieces: int, failures: int) -> list[str]:
    return [
        "|                  PyTorch CUDA memory summary, device ID 2                 |",
        f"|            CUDA OOMs: {failures}            |        cudaMalloc retries: 57        |",
        "| Allocated memory      |  47002 MiB |  59120 MiB | 812331 GiB | 812285 GiB |",
        "| GPU reserved memory   |  78234 MiB |  78302 MiB |   1921 GiB |   1845 GiB |",
        f"| Non-releasable memory |  {pieces} MiB |  31244 MiB | 904417 GiB | 904393 GiB |",
        "|===========================================================================|",
    ]


def test_torchs_own_table_of_memory() -> None:
    found = causes(*summary(31190, 1))
    assert firsts(found) == ("gpu-memory-fragmented", "likely") and "30.5 of them" in found[0].summary
    for calm in (summary(31190, 0), summary(900, 1)):
        assert "gpu-memory-fragmented" not in [cause.cause for cause in causes(*calm)]


def test_demands_that_wait_although_there_is_room() -> None:
    table = [" 0.0/192.0 CPU", " {}/16.0 GPU", " {{'GPU': 1.0}} * {} (PACK): 1+ pending placement groups"]
    inodes = ["Filesystem            Inodes    IUsed IFree IUse% Mounted on", "/dev/mapper/vg0-tmp 13107200 13107200     0  100% /tmp"]  # fmt: skip
    full = [line.format(number) for line, number in zip(table, ("", "0.0", "16"), strict=True)]
    assert causes(*full)[0].cause == "unresolved"
    assert causes(*full, *inodes)[0].cause == "disk-full"
    for used, wanted in (("4.0", "16"), ("0.0", "17")):
        lines = [line.format(number) for line, number in zip(table, ("", used, wanted), strict=True)]
        assert causes(*lines)[0].cause == "ray-resources-infeasible"


def test_environments_a_variable_a_line() -> None:
    def one(host: str, rank: int, world: int = 8) -> list[str]:
        command = f"[root@{host} ~]# tr '\\0' '\\n' < /proc/9078/environ | grep -E '^(RANK|WORLD_SIZE)='"
        return [command, "LOCAL_RANK=1", f"RANK={rank}", f"WORLD_SIZE={world}"]

    found = causes(*one("spruce11", 1), *one("spruce12", 1))
    assert firsts(found) == ("rank-layout-wrong", "likely") and "spruce11 and spruce12" in found[0].summary
    for fine in ([*one("spruce11", 1), *one("spruce12", 5)], [*one("spruce11", 0, 1), *one("spruce12", 0, 1)]):
        assert "rank-layout-wrong" not in [cause.cause for cause in causes(*fine)]


def test_two_listeners_at_an_address_that_the_other_node_does_not_reach() -> None:
    rows = [f"LISTEN 0      16384     192.0.2.121:{port}      0.0.0.0:*    {PYTHON.format(40)}" for port in (38211, 35907)]  # fmt: skip
    dials = f"SYN-SENT 0      1         198.51.100.22:46630     192.0.2.121:38211  {PYTHON.format(38)}"
    store = f"ESTAB    0      0         198.51.100.22:50114     198.51.100.21:29511  {PYTHON.format(38)}"
    assert causes(TABLE, *rows, "", TABLE, dials, store)[0].cause == "socket-ifname-wrong"


def test_a_port_slower_than_its_siblings_in_a_loops_output() -> None:
    rows = [f"mlx5_{number} 4: ACTIVE | 400 Gb/sec (4X NDR) | down 1" for number in range(3)]
    found = causes(*rows, "mlx5_3 4: ACTIVE | 200 Gb/sec (2X NDR) | down 41")
    assert found[0].cause == "ib-link-or-hca-fault" and found[0].where["device"] == "mlx5_3"
    assert "ib-link-or-hca-fault" not in [cause.cause for cause in causes(*rows)]


def test_the_lowest_speed_of_a_link_at_rest() -> None:
    assert firsts(causes("\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16")) == ("pcie-degraded", "possible")
    for link in ("Speed 8GT/s (downgraded), Width x16", "Speed 2.5GT/s (downgraded), Width x4 (downgraded)"):
        assert firsts(causes(f"\t\tLnkSta:\t{link}")) == ("pcie-degraded", "likely")


def ids(first: str) -> list[str]:
    return [f"GPU-{first}{number}1d90aa-51f2-8e0b-7c47-02b6d8f10e93" for number in range(2)]


def test_gpus_named_by_another_nodes_uuids() -> None:
    def node(label: str, named: list[str], there: list[str]) -> list[str]:
        rows = [f"{label}: GPU {index}: NVIDIA A100-SXM4-80GB (UUID: {one})" for index, one in enumerate(there)]
        return [f"{label}: CUDA_VISIBLE_DEVICES={','.join(named)}", *rows]

    found = causes(*node("0", ids("a"), ids("a")), *node("1", ids("a"), ids("b")))
    assert firsts(found) == ("visible-devices-conflict", "likely") and "UUID" in found[0].summary
    fine = causes(*node("0", ids("a"), ids("a")), *node("1", ids("b"), ids("b")))
    assert "visible-devices-conflict" not in [cause.cause for cause in fine]


def test_rows_of_df_without_their_heading() -> None:
    full = "ash03: /dev/nvme1n1p1  122101760 122101760         0  100% /scratch"
    assert causes(full)[0].cause == "disk-full" and "/scratch" in causes(full)[0].summary
    for fine in ("/dev/loop3  65536 65536 0 100% /snap/core20/2015", full.replace("  0  100%", "  9   99%")):
        assert "disk-full" not in [cause.cause for cause in causes(fine)]


def test_files_of_a_model_that_are_not_there_or_do_not_match() -> None:
    absent = "fir3: ls: cannot access '/models/L/*.safetensors': No such file or directory"
    assert causes(absent)[0].cause == "model-path-missing"
    assert "model-path-missing" not in [cause.cause for cause in causes(absent.replace("L/*.safetensors", "notes.txt"))]
    assert causes("model-00017-of-00030.safetensors: FAILED")[0].cause == "weights-corrupt"


def test_torchs_table_of_one_rank_among_others() -> None:
    lines = [f"[rank5] {line}" for line in summary(31190, 1)]
    assert causes(*lines, "[rank1] | Non-releasable memory |  1 MiB |")[0].cause == "gpu-memory-fragmented"


def image(pod: str, digest: str) -> str:
    return f"{pod}\tvllm/vllm-openai:latest\tIfNotPresent\tdocker.io/vllm/vllm-openai@sha256:{digest * 64}"


def test_two_images_of_one_tag() -> None:
    refused = "vllm serve: error: unrecognized arguments: --nnodes 2 --node-rank 1"
    found = causes(image("llm-0", "9"), image("llm-0-1", "2"), refused)
    assert firsts(found) == ("version-mismatch", "likely") and "digests" in found[0].summary
    assert causes(image("llm-0", "9"), image("llm-0-1", "9"), refused)[0].cause == "env-unknown-or-invalid"
    assert firsts(causes(image("llm-0", "9"), image("llm-0-1", "2"))) == ("version-mismatch", "possible")
