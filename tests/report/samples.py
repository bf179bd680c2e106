"""Results as commands write them. COMPOSED: no capture of a real cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ncdiag.hang.verdict import Fold, RankVerdict, Verdict, Wait
from ncdiag.model import Cause, Evidence, Finding, fail, ok, skip, unknown, warn
from ncdiag.nccl.rules import rules_for
from ncdiag.nccl.settings import settings_from
from ncdiag.nccl.topology_view import as_data, view
from ncdiag.nccl.topology_xml import parse_topology
from ncdiag.report.result import Result
from ncdiag.report.run import Run
from tests.nccl_topology import machines as dumps

STAGES = ("start", "import", "rendezvous", "nccl-init", "load-weights", "compile", "graph-capture", "ready")


def machine(name: str, nodes: list[str], dump: str = "") -> dict[str, Any]:
    """A machine with eight rails, or that of `dump`."""
    rules = rules_for((2, 27, 5))
    shown = view(parse_topology(dump or dumps.eight_rails()), rules, settings_from({}, rules).settings)
    return {"name": name, "nodes": nodes, **as_data(shown)}


def preflight(nodes: int = 4) -> Result:
    """Something of every status, on some and on all nodes."""
    names = [f"gpu{number:02}" for number in range(1, nodes + 1)]
    findings = [
        fail(
            "/dev/shm has 64 MiB free of 64 MiB; two ranks on a node need 160 MiB",
            names[min(1, nodes - 1)],
            observed=67108864,
            expected=">= 167772160 bytes",
            source="statvfs /dev/shm",
            cause="shm-too-small",
            remedy="start the container with --shm-size=16g or --ipc=host",
        ),
        fail(
            "port 1 of mlx5_3 is DOWN; on the other nodes it is ACTIVE",
            names[-1],
            device="mlx5_3",
            observed="DOWN",
            expected="ACTIVE",
            source="/sys/class/infiniband/mlx5_3/ports/1/state",
            cause="ib-link-or-hca-fault",
            remedy="check cable and switch port, then: ibstat mlx5_3",
        ),
        warn(
            "GPU 5 runs at 1,200 of 1,980 MHz: power cap",
            names[-1],
            device="0000:60:00.0",
            observed=1200,
            expected=1980,
            source="nvidia-smi -q -x: clocks",
            cause="gpu-throttled",
            remedy="nvidia-smi -pl to the default of the board; check inlet temperature",
        ),
        *(
            warn(
                "the clock is not synchronised (error up to 16.0 s): no time daemon runs",
                name,
                source="adjtimex",
                cause="clock-skew",
                remedy="systemctl enable --now chronyd",
            )
            for name in names
        ),
        *(
            unknown(
                "locked memory is limited to 8192 KiB; whether CAP_IPC_LOCK lifts that could not be read",
                name,
                setting="memlock",
                source="/proc/PID/limits",
                remedy="see CapEff in /proc/PID/status of the engine",
            )
            for name in names
        ),
        *(ok(f"eth0 of {name} is up with 1 address", name, source="/sys/class/net/eth0") for name in names),
        *(skip("no NVSwitch here", name, source="lspci") for name in names),
    ]
    probes = (
        "shm",
        "rdma-port",
        "gpu-clocks",
        *["clock"] * nodes,
        *["limits"] * nodes,
        *["interface-link"] * nodes,
        *["nvlink-fabric"] * nodes,
    )
    named = [Finding(**{**vars(one), "probe": probe}) for one, probe in zip(findings, probes, strict=True)]
    dump = dumps.eight_rails(nic_of=lambda i: dumps.nic(f"0000:{0x10 + 16 * i:02x}:01.0", i, gdr=int(i != 6)))
    shapes: list[Mapping[str, Any]] = (
        [machine(names[0], names[:-1]), machine(names[-1], names[-1:], dump)]
        if nodes > 1
        else [machine(names[0], names)]
    )
    return Result("preflight", 1, names, named, machines=shapes)


def hang(ranks: int = 8) -> Result:
    """One rank in a Python loop, the others in the collective."""
    late = ranks // 2 + 1
    rows = []
    for number in range(ranks):
        node = f"gpu{number // 8 + 1:02}"
        culprit = number == late
        rows.append(
            RankVerdict(
                node,
                4000 + number,
                "worker",
                number,
                "stuck" if culprit else "waiting",
                "collective",
                341.0 + number % 7,
                waits_for="" if culprit else f"rank {late} (gpu{late // 8 + 1:02})",
                why="in tokenize (train.py:88), which does not move" if culprit else "ncclAllReduce",
                culprit=culprit,
                name=f"rank {number} ({node}, pid {4000 + number})",
            )
        )
    who = rows[late].name
    cause = Cause(
        "rank-behind",
        "likely",
        f"{who} has not entered the all_reduce that the other {ranks - 1} ranks wait in",
        {"rank": late, "node": rows[late].node},
        [
            Evidence("py-spy dump --pid %d" % (4000 + late), "tokenize (train.py:88)"),
            Evidence("NCCL RAS", f"rank {late}: 17 AllReduce, others 18"),
        ],
        [Evidence("gpu01.log", "Watchdog caught collective operation timeout", 812)],
        "look at what rank %d does in tokenize; py-spy dump it again" % late,
    )
    others = [row.name for row in rows if row.rank != late]
    folds = [
        Fold(
            others,
            [
                "all_reduce (torch/distributed/distributed_c10d.py:2501)",
                "forward (vllm/model_executor/layers/linear.py:1204)",
                "execute_model (vllm/v1/worker/gpu_worker.py:402)",
            ],
        ),
        Fold(
            [who],
            [
                "tokenize (/home/user/train.py:88)",
                "step (/home/user/train.py:61)",
                "<module> (/home/user/train.py:120)",
            ],
            True,
        ),
    ]
    waits = [Wait(row.name, who, "in all_reduce, rank %d is not" % late) for row in rows if row.rank != late]
    verdict = Verdict(
        "hang",
        cause.summary,
        [cause],
        rows,
        waits,
        folds,
        [{"name": "0x7f3a", "size": ranks, "behind": [late]}],
        ["NCCL_DEBUG=INFO of the next run"],
    )
    notes = ["pids 4003: no native frames: ptrace is not permitted; run with CAP_SYS_PTRACE"]
    return Result.of_verdict("hang-dump", verdict, notes, 1, Run("2026-02-03T04:05:06Z", "gpu01", "0.1.0"))


def bringup(ranks: int = 8) -> dict[str, Any]:
    """The JSON of a start in which one rank loads its weights slowly."""
    rows = []
    for number in range(ranks):
        at, spans = 0.4, []
        for place, stage in enumerate(STAGES):
            took = (1.2, 7.5, 0.8, 2.2, 31.0 if number != ranks - 2 else 96.0, 14.0, 9.0, 12.0)[place] * (
                1 + number % 5 / 40
            )
            if place == len(STAGES) - 1:
                took = max(1.0, 176.0 - at)
            spans.append({"stage": stage, "from_s": round(at, 2), "to_s": round(at + took, 2)})
            at += took
        rows.append(
            {
                "node": f"gpu{number // 8 + 1:02}",
                "pid": 900 + number,
                "role": "worker",
                "rank": number,
                "ended_s": None,
                "spans": spans,
            }
        )
    return {
        "schema": 1,
        "command": "bringup",
        "outcome": "ready",
        "took_s": 171.3,
        "check": {"latency_s": 0.84, "model": "llama-70b", "completion_tokens": 8, "error": None},
        "summary": {
            "kv_cache": {
                "tokens": 415232,
                "sentence": "415,232 tokens, 25,952 blocks of 16, 12.7 requests at a time of the full 32,768 tokens",
            },
            "network": "NCCL: IB",
            "warnings": [],
        },
        "timeline": {
            "rows": rows,
            "events": [{"at_s": 118.0, "event": "stall", "ranks": "0-5,7"}, {"at_s": 171.3, "event": "ready"}],
        },
        "causes": [],
        "ranks": [],
        "communicators": [],
        "next": [],
        "exit": 0,
    }


def bandwidth(nodes: int = 8, near: int = 1000) -> dict[str, Any]:
    """The JSON of pair runs with one slow and one dead node; each node with the `near` next ones."""
    names = [f"gpu{number:02}" for number in range(1, nodes + 1)]
    pairs = []
    for row, one in enumerate(names):
        for column in range(row + 1, min(nodes, row + 1 + near)):
            slow = 2 in (row, column)
            dead = nodes > 5 and 5 in (row, column)
            figure = None if dead else 21.4 if slow else 46.2 - (row * 7 + column * 3) % 5
            stage = "nccl-init" if dead else None
            pairs.append(
                {
                    "round": row,
                    "nodes": [one, names[column]],
                    "rail": None,
                    "busbw_gbytes_s": figure,
                    "stage": stage,
                    "retransmitted": 0,
                }
            )
    pairs.append(
        {"round": 9, "nodes": names[:2], "rail": "mlx5_0", "busbw_gbytes_s": 1.0, "stage": None, "retransmitted": 0}
    )
    rows = [
        {
            "op": "all_reduce",
            "size_bytes": 1 << power,
            "in_place": place,
            "busbw_gbytes_s": 48.0 * (1 << power) / ((1 << power) + (1 << 24)),
            "busbw_half_width_gbytes_s": 0.02,
            "wrong": 0,
        }
        for power in range(10, 31, 4)
        for place in (False, True)
    ]
    found = warn(
        "gpu03 is slow with every partner: 46 % of what is usual",
        "gpu03",
        observed=21.4,
        expected=44.2,
        source="pairs of ncdiag bandwidth",
        cause="network-slow-link",
        remedy="compare its NICs with a good node's: ncdiag preflight --only rdma-port",
    )
    terms = [
        {"what": "NICs", "value": 2, "unit": "of 400 Gb/s", "source": "NCCL's log: NET/IB"},
        {"what": "efficiency", "value": 0.97, "unit": "", "source": "measured on other machines"},
    ]
    return {
        "schema": 1,
        "command": "bandwidth",
        "run": {"at": "2026-02-03T04:05:06Z", "host": "login1", "version": "0.1.0"},
        "nodes": names,
        "backend": "nccl",
        "ranks": [{"name": "NVIDIA H100", "node": name, "rank": number} for number, name in enumerate(names)],
        "versions": {"nccl": ["2.27.5"]},
        "rows": rows,
        "findings": [{**found.as_dict(), "probe": "bandwidth"}],
        "expectation": {
            "busbw_gbytes_s": 97.0,
            "bound": "2 x 400 Gb/s",
            "terms": terms,
            "chosen": "NET/IB, GDRDMA",
            "remarks": [],
            "causes": [],
            "why": "",
        },
        "isolation": {
            "verdicts": [],
            "tests": pairs,
            "rounds": 12,
            "most_rounds": 16,
            "usual_busbw_gbytes_s": 44.2,
            "slow_below": 0.85,
        },
        "logs": {"5": "gpu06: libibverbs: no device\nRuntimeError: ncclSystemError\n"},
        "engine": [{"layout": "TP 16", "what": "decode step", "tokens": 32, "communication_s": 0.0041, "share": 0.22}],
        "exit": 0,
    }
