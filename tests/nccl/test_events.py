"""Error lines by kind and fields, in the wordings of the versions."""

from __future__ import annotations

import random
import re
from typing import Any, Dict, Tuple

import pytest

from ncdiag.nccl import events
from ncdiag.nccl.log import NcclLog
from ncdiag.nccl.log_facts import Event

GIDS = "localGid fe80::a1 remoteGidsfe80::b2"
CASES: Dict[str, Tuple[str, Dict[str, Any]]] = {
    # 2.18, 2.19
    f"NET/IB : Got completion from peer 192.0.2.8<43143> with error 12, opcode 0, len 0, vendor err 129 (Send) {GIDS}":
        ("ib-completion-error", {"peer": "192.0.2.8", "status": 12, "status_name": "RETRY_EXC_ERR", "vendor_err": 129, "request": "Send", "local_gid": "fe80::a1"}),
    # 2.20, 2.21
    f"NET/IB : Got completion from peer 192.0.2.8<43143> with status=5 opcode=129 len=0 vendor err 249 (Recv) {GIDS}":
        ("ib-completion-error", {"status": 5, "opcode": 129, "vendor_err": 249, "remote_gid": "fe80::b2"}),
    # 2.22 … 2.28.3
    f"NET/IB: Got completion from peer 192.0.2.8<43143> with status=13 opcode=0 len=0 vendor err 129 (Recv) {GIDS} hca mlx5_9":
        ("ib-completion-error", {"status": 13, "device": "mlx5_9", "status_name": "RNR_RETRY_EXC_ERR"}),
    # 2.28.9
    "NET/IB: Got completion from peer 192.0.2.8<43143> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=8 vendor_err=129 req_type=Send hca mlx5_0":
        ("ib-completion-error", {"status": 12, "len": 8, "vendor_err": 129, "request": "Send", "device": "mlx5_0"}),
    # 2.29.2 …, 2.32
    "NET/IB: Got completion from peer 192.0.2.8<43143> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129 hca mlx5_0":
        ("ib-completion-error", {"status": 12, "vendor_err": 129}),
    "NET/IB: Got completion from peer 192.0.2.8<43143> with status=IBV_WC_WR_FLUSH_ERR(5) opcode=IBV_WC_SEND(0) vendor_err=249 qp_num=77 hca mlx5_0":
        ("ib-completion-error", {"status": 5, "vendor_err": 249, "qp": 77}),
    "NET/IB/GIN: Got completion from peer 192.0.2.8<1> with status=12 opcode=0 len=0 vendor err 129 (Send)": ("ib-completion-error", {"status": 12}),
    "Call to ibv_modify_qp failed with error Connection timed out errno 110": ("ib-verbs-failed", {"call": "ibv_modify_qp", "reason": "Connection timed out", "errno": 110}),
    "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory": ("ib-verbs-failed", {"call": "ibv_reg_mr_iova2", "reason": "Cannot allocate memory"}),
    "Call to ibv_create_qp failed": ("ib-verbs-failed", {"call": "ibv_create_qp"}),
    "Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_4:1, curr state INIT, next state RTR, local GID index 3, local GID ::ffff:192.0.2.1, remote GID ::":
        ("ib-verbs-failed", {"errno": 22, "reason": "Invalid argument", "device": "mlx5_4", "port": 1, "gid_index": 3, "next_state": "RTR", "local_gid": "::ffff:192.0.2.1"}),
    "NET/IB : Got async event : port error": ("ib-async-event", {"event": "port error"}),
    "NET/IB : mlx5_3:1 Got async event : GID table change": ("gid-table-changed", {"device": "mlx5_3", "port": 1}),
    "NET/IB : mlx5_3:1 Got async error event: port error": ("ib-async-event", {"device": "mlx5_3", "event": "port error"}),
    "NET/IB : mlx5_3:1 Got non-fatal async event: port active(10)": ("ib-async-event", {"severity": "non-fatal", "event": "port active"}),
    "NET/IB : mlx5_3:1 async fatal event: local catastrophic error": ("ib-async-event", {"device": "mlx5_3", "severity": "fatal", "event": "local catastrophic error"}),
    "NET/IB : Unable to open device mlx5_1": ("ib-device-unusable", {"action": "open", "device": "mlx5_1"}),
    "NET/IB : Unable to query port_num 1": ("ib-device-unusable", {"port": 1}),
    "Bootstrap : no socket interface found": ("bootstrap-no-interface", {}),
    "no device found matching =ib7, verify NCCL_OOB_NET_IFNAME": ("oob-no-device", {"filter": "=ib7"}),
    "Net : No interface found in the same subnet as remote address 192.0.2.8<40000>": ("no-interface-in-subnet", {"peer": "192.0.2.8"}),
    "Bootstrap Root : rank 3 of 8 ranks has already checked in": ("bootstrap-duplicate-rank", {"rank": 3, "nranks": 8}),
    "Bootstrap Root : mismatch in rank count from procs 8 : 16": ("bootstrap-rank-count", {"ours": 8, "theirs": 16}),
    "Bootstrap Root : mismatch in info from procs, nranks 8 vs 16, nroots 1 vs 1, iroot 0 vs 0, offset 0 vs 0": ("bootstrap-rank-count", {"ours": 8, "theirs": 16}),
    "Message truncated : received 1024 bytes instead of 256": ("message-truncated", {"received": 1024, "expected": 256}),
    "Connect to 192.0.2.8<43959> failed : No route to host": ("connect-failed", {"peer": "192.0.2.8", "peer_port": "43959", "reason": "No route to host"}),
    "socketStartConnect: Connect to 192.0.2.8<43959> failed : Software caused connection abort": ("connect-failed", {"peer": "192.0.2.8"}),
    "socketStartConnect: exceeded retries (20000)": ("connect-gave-up", {"attempts": 20000}),
    "socketPollConnect: Connect to 192.0.2.8<43959> returned 111(Connection refused) errno 115(Operation now in progress)": ("connect-failed", {"errno": 115}),
    "socketPollConnect: connect to 192.0.2.8<43959> returned Connection refused, exceeded error retry count after 35 attempts":
        ("connect-gave-up", {"peer": "192.0.2.8", "reason": "Connection refused", "attempts": 35}),
    "socketPollConnect: connect returned Connection refused, exceeded error retry count (35)": ("connect-gave-up", {"reason": "Connection refused", "attempts": 35}),
    "socketProgress: Connection closed by remote peer node02<51234>": ("connection-closed", {"peer": "node02", "peer_port": "51234"}),
    "socketProgressOpt: Call to recv from 192.0.2.8<51234> failed : Connection reset by peer": ("socket-error", {"call": "recv", "peer": "192.0.2.8", "reason": "Connection reset by peer"}),
    "ncclOsSocketProgressOpt: Call to send to 192.0.2.8<51234> failed : Broken pipe": ("socket-error", {"call": "send", "reason": "Broken pipe"}),
    "Error: network gIB not found.": ("net-unavailable", {"network": "gIB"}),
    "Failed to initialize any NET plugin": ("net-unavailable", {}),
    "NET/OFI Selected provider is tcp, fabric is 192.0.2.0/24 (found 8 nics)": ("ofi-provider", {"provider": "tcp", "devices": 8}),
    "NET/OFI No eligible providers were found": ("ofi-no-provider", {}),
    "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 53000": ("duplicate-gpu", {"rank_a": 0, "rank_b": 1, "bus_id": "53000"}),
    "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration.": ("duplicate-gpu", {}),
    "Mismatched NCCL version detected : rank 0 version 22105 rank 3 version 22703": ("version-mismatch", {"rank_b": 3, "version_b": 22703}),
    "Cuda failure 'out of memory'": ("cuda-failure", {"reason": "out of memory"}),
    "Cuda failure 700 'an illegal memory access was encountered'": ("cuda-failure", {"cuda_code": 700}),
    "Failed to CUDA calloc 4194304 bytes": ("cuda-failure", {"bytes": 4194304}),
    "Error while creating shared memory segment /dev/shm/nccl-X (size 9637888)": ("shm-failed", {"path": "/dev/shm/nccl-X", "bytes": 9637888, "action": "creating"}),
    "Error while attaching to shared memory segment /dev/shm/nccl-X (size 64), error: No such file or directory (2)": ("shm-failed", {"reason": "No such file or directory", "errno": 2}),
    "Error: failed to extend /dev/shm/nccl-X to 9637892 bytes, error: No space left on device (28)": ("shm-failed", {"action": "extend", "errno": 28, "bytes": 9637892}),
    "Error: failed to create shared memory file /dev/shm/nccl-XXXXXX, error Permission denied (13)": ("shm-failed", {"action": "create", "errno": 13}),
    "MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel configuration (/dev/nvidia-caps-imex-channels).": ("mnnvl-unavailable", {"clique_size": 8}),
    "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 1 'invalid argument'.": ("nvls-bind-failed", {"bytes": 2097152, "cuda_code": 1}),
    "P2P is disabled between NVLINK connected GPUs 0 and 3. This should not be the case given their connectivity": ("p2p-broken", {"gpu_a": 0, "gpu_b": 3}),
    "No transport found for rank 3[18000] -> rank 4[19000]": ("no-transport", {"rank_a": 3, "rank_b": 4}),
    "Could not open XML topology file /etc/topo.xml : No such file or directory": ("topology-file", {"path": "/etc/topo.xml"}),
    "Failed to open libnvidia-ml.so.1": ("library-missing", {"library": "libnvidia-ml.so.1"}),
    "nvmlInit_v2() failed: Driver/library version mismatch": ("nvml-failed", {"call": "nvmlInit_v2", "reason": "Driver/library version mismatch"}),
    "Call to open failed: No such file or directory": ("syscall-failed", {"call": "open", "reason": "No such file or directory"}),
    "Call to bind failed : Address already in use": ("syscall-failed", {"call": "bind"}),
    "[Proxy Service 3] Failed to execute operation Setup from rank 3, retcode 2": ("proxy-error", {}),
    "something nobody has seen": ("warning", {}),
}  # fmt: skip

PREFIXES = {
    "2.18": "node01:4000:4100 [0] transport/net_ib.cc:1296 NCCL WARN ",
    "2.26": "[2026-11-29 16:53:57] node01:4000:4100 [0] transport/net_ib.cc:1296 NCCL WARN ",
    "2.30.7": "[2026-11-29 16:53:57] node01:4000:4100 [0] transport/net_ib.cc:1296 (ncclIbTest) NCCL WARN ",
    "2.32 notice": "[2026-11-29 16:53:57] node01:4000:4100 [0] transport/net_ib.cc:1296 (ncclIbTest) NCCL ATTN ",
    "ray": "\x1b[36m(RayWorkerWrapper pid=4000, ip=192.0.2.1)\x1b[0m node01:4000:4100 [0] transport/net_ib.cc:1296 NCCL WARN ",
    "mpirun": "[1,0]<stdout>:node01:4000:4100 [0] transport/net_ib.cc:1296 NCCL WARN ",
}


def event(line: str) -> Event:
    parser = NcclLog()
    parser.feed("job.log", b"\n" + line.encode() + b"\n")
    (found,) = parser.finish().events
    return found


@pytest.mark.parametrize("message", CASES)
def test_kind_and_fields(message: str) -> None:
    kind, fields = CASES[message]
    found = event(PREFIXES["2.26"] + message)
    assert found.kind == kind
    assert {name: found.fields.get(name) for name in fields} == fields
    assert found.secondary == (
        fields.get("status") == 5 or kind in ("connection-closed", "socket-error", "proxy-error")
    )


@pytest.mark.parametrize("name", PREFIXES)
def test_who_and_where(name: str) -> None:
    found = event(PREFIXES[name] + "Cuda failure 'out of memory'")
    assert (found.host, found.pid, found.tid, found.at.line) == ("node01", 4000, 4100, 2)
    function = " (ncclIbTest)" if name.startswith(("2.30.7", "2.32")) else ""
    assert found.code == "transport/net_ib.cc:1296" + function
    assert found.time == ("2026-11-29 16:53:57" if name.startswith(("2.26", "2.3")) else None)
    assert found.level == ("ATTN" if "notice" in name else "WARN")


INFO: Dict[str, Tuple[str, Dict[str, Any]]] = {
    "socketPollConnect: connect to 192.0.2.8<43959> returned No route to host, retrying (3/34) after sleep for 300 msec": ("connect-retry", {"peer": "192.0.2.8", "reason": "No route to host", "attempt": 3, "of": 34}),
    "Call to connect returned Connection refused, retrying": ("connect-retry", {"reason": "Connection refused"}),
    "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state RTR, retrying 2/34 after 200 msec of sleep": ("ib-modify-qp-retry", {"errno": 110, "attempt": 2}),
    "transport/net.cc:1362 -> 6": ("propagation", {"result": 6, "result_name": "remote error"}),
    "transport/net.cc:1362 (ncclNetConnect) -> 2": ("propagation", {"result": 2}),
    "group.cc:76 -> 2 [Async thread]": ("propagation", {"thread": "Async thread"}),
    "HINT: check that the peer is reachable": ("hint", {}),
    "Failed to open libibverbs.so[.1]": ("library-missing", {"library": "libibverbs.so"}),
    "Count not open libibverbs.so.1": ("library-missing", {"library": "libibverbs.so.1"}),
    "P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.": ("p2p-disabled", {"gpu_a": 1}),
    "Invalid value abc for NCCL_IB_TIMEOUT, using default 20.": ("param-invalid", {"variable": "NCCL_IB_TIMEOUT", "default": 20}),
    "NET/IB : mlx5_0:1 speed change detected: 400000 -> 100000 Mbps": ("ib-speed-change", {"from_mbits_s": 400000, "to_mbits_s": 100000}),
}  # fmt: skip


@pytest.mark.parametrize("message", INFO)
def test_remarkable_info_lines(message: str) -> None:
    kind, fields = INFO[message]
    found = event("node01:4000:4100 [0] NCCL INFO " + message)
    assert (found.kind, {name: found.fields.get(name) for name in fields}) == (kind, fields)


@pytest.mark.parametrize(
    "message",
    [
        "NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.",
        "NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file No plugin found (libnccl-net.so), using internal implementation",
        "TUNER/Plugin: Failed to find ncclTunerPlugin_v4 symbol.",
        "NET/IB : Failed to open mlx5dv symbols. Advance features like CX-8 Direct-NIC will be disabled.",
        "PROFILER/Plugin: Could not find: libnccl-profiler.so. ",
        "NET/IB : No device found.",
        "Failed to initialize NET plugin IB",
    ],
)
def test_normal_lines_are_no_events(message: str) -> None:
    parser = NcclLog()
    parser.feed("job.log", f"node01:4000:4100 [0] NCCL INFO {message}\n".encode())
    assert parser.finish().events == []


def test_repetitions_are_counted_and_numbered() -> None:
    parser = NcclLog()
    line = "node01:4000:4100 [0] NCCL INFO socketPollConnect: connect to 192.0.2.8<43959> returned Connection refused, retrying ({}/34) after sleep for 300 msec\n"
    parser.feed("job.log", "".join(line.format(attempt) for attempt in range(1, 35)).encode())
    (found,) = parser.finish().events
    assert (found.count, found.at.line, found.last_line) == (34, 1, 34)


def test_errors_are_of_the_rank_whose_process_it_is() -> None:
    parser = NcclLog()
    start = "node01:4000:4100 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 3 nranks 8 cudaDev 3 busId 9a000 commId 0x7 - Init START\n"
    parser.feed(
        "job.log", (start + PREFIXES["2.26"].replace(":4100", ":4200") + "Cuda failure 'out of memory'\n").encode()
    )
    facts = parser.finish()
    assert (facts.events[0].rank, facts.events[0].communicator) == (3, 0)
    assert facts.communicators[0].ranks[0].errors == 1


def test_messages_without_any_prefix() -> None:
    """Logs cut down to messages, as people paste them."""
    parser = NcclLog()
    parser.feed(
        "paste.txt",
        b"ibvwrap.c:174 NCCL WARN Call to ibv_modify_qp failed with error No such device errno 19\nNCCL INFO Using network IBext_v8\n",
    )
    facts = parser.finish()
    assert [(event.kind, event.code, event.fields["errno"]) for event in facts.events] == [
        ("ib-verbs-failed", "ibvwrap.c:174", 19)
    ]
    assert [(process.host, process.network) for process in facts.processes] == [(None, "IBext_v8")]
    assert "no host and pid" in facts.notes[0]


def test_kinds_are_listed_once_as_harmless_or_not() -> None:
    assert {pattern.kind for pattern in events.PATTERNS} | {"diagnostics"} >= events.HARMLESS


@pytest.mark.parametrize("message", CASES)
def test_messages_of_one_shape_are_of_one_row(message: str) -> None:
    chance = random.Random(7)
    for _ in range(20):
        other = re.sub(
            r"(?<![A-Za-z0-9])[0-9]+", lambda _: str(chance.randrange(10 ** chance.randrange(1, 9))), message
        )
        assert events.shape(other.encode()) == events.shape(message.encode())
        assert events.row(other) == events.row(message)


def test_a_storm_is_counted_as_its_lines_one_by_one() -> None:
    """What tells two events apart is their peer and status, and no number that changes from try to try."""
    chance = random.Random(3)
    forms = (
        "misc/socket.cc:484 NCCL WARN Connect to 192.0.2.{a}<{n}> failed : Connection refused",
        "NCCL WARN NET/IB : Got completion from peer 192.0.2.{a}<{n}> with status={b} opcode={n} len=0 vendor err 129 (Send) localGid fe80::{a} hca mlx5_{b}",
        "NCCL WARN Call to recv from 192.0.2.{a}<{n}> failed : Connection reset by peer",
        "NCCL WARN something that nobody knows: unit {a}, condition {n}",
        "NCCL INFO Call to connect returned Connection refused, retrying ({n}/34) after sleep for {n}00 msec",
    )
    lines = [
        f"gpu{a}:1:2 [0] " + chance.choice(forms).format(a=a, b=chance.choice((5, 12)), n=chance.randrange(1, 60000))
        for a in (chance.randrange(1, 4) for _ in range(600))
    ]
    together = NcclLog()
    together.feed("job.log", "\n".join(lines).encode() + b"\n")
    wanted: Dict[object, int] = {}
    for line in lines:
        alone = NcclLog()
        alone.feed("job.log", line.encode() + b"\n")
        (event,) = alone.finish().events
        steady = {
            key: value
            for key, value in event.fields.items()
            if key not in ("peer_port", "opcode", "attempt", "wait_ms")
        }
        key = (event.host, event.kind, event.level, str(steady))
        wanted[key] = wanted.get(key, 0) + 1
    found = together.finish().events
    assert sorted(event.count for event in found) == sorted(wanted.values())


@pytest.mark.parametrize("stamp", ["", "2026-11-29T16:53:57.{}Z stdout F ", "[2026-11-29 16:53:{}] "])
def test_the_same_place_in_the_code_is_not_the_same_speaker(stamp: str) -> None:
    lines = [
        stamp.format(10 + number)
        + f"gpu{number}:1{number}:2{number} [0] misc/socket.cc:484 NCCL WARN Connect to 192.0.2.{number}<5> failed : Connection refused"
        for number in (1, 2)
    ]
    parser = NcclLog()
    parser.feed("job.log", "\n".join(lines).encode())
    assert [(event.host, event.pid) for event in parser.finish().events] == [("gpu1", 11), ("gpu2", 12)]


@pytest.mark.parametrize(
    "path, kind, ends",
    [
        ("/sys/class/pci_bus/fffffff/../../fffffff:ff:f", "pci-path-hidden", False),
        ("/sys/class/pci_bus/ffffffff:ff/../../ffffffff:ff:ff.f", "pci-path-hidden", False),
        ("mlx5_0 (/sys/class/infiniband/mlx5_0/device)", "ib-path-unresolved", True),
        ("/sys/class/pci_bus/0000:ff/../../0000:ff:00.0", "ib-path-unresolved", True),
    ],
)
def test_a_switch_without_address_is_no_nic(path: str, kind: str, ends: bool) -> None:
    found = event(f"node01:4000:4100 [0] graph/xml.cc:1 NCCL WARN Could not find real path of {path}")
    assert (found.kind, events.ends_a_rank(found)) == (kind, ends)
