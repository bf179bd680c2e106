"""NCCL's variables are spelt right, hold what NCCL can read, and fit each other, the machine and the other nodes.

NCCL ignores a name it does not know without a word, reads `true` as 0 and `010` as 8. What was left on from debugging
(P2P or SHM off, TRACE) makes a healthy cluster slow, and a setting that differs between nodes makes it hang.

Source: NVIDIA/nccl src/misc/param.cc and the table in ncdiag/nccl/variables.py; /proc/<pid>/environ or the environment of ncdiag.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, TypedDict

from ncdiag import engine, parity
from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, unknown, warn
from ncdiag.nccl import contradictions, environment
from ncdiag.nccl.environment import Setting
from ncdiag.nccl.node import release, several
from ncdiag.nccl.node import settings as settings_of
from ncdiag.nccl.version import Version
from ncdiag.nodeset import counted, fold

MUST_BE_EQUAL = (
    "ALGO",
    "PROTO",
    "NET",
    "IB_DISABLE",
    "OOB_NET_ENABLE",
    "SOCKET_MAGIC",
    "NTHREADS",
    "LL128_NTHREADS",
    "BUFFSIZE",
    "LL_BUFFSIZE",
    "LL128_BUFFSIZE",
    "P2P_NET_CHUNKSIZE",
    "P2P_NVL_CHUNKSIZE",
    "P2P_PCI_CHUNKSIZE",
    "NVLS_ENABLE",
    "COLLNET_ENABLE",
    "CUMEM_ENABLE",
    "IB_QPS_PER_CONNECTION",
)
"""Variables that change what goes over the wire: ranks that differ in one hang or fail. A judgement from what each controls."""

SHOULD_BE_EQUAL = (
    "MIN_NCHANNELS",
    "MAX_NCHANNELS",
    "CROSS_NIC",
    "PXN_DISABLE",
    "P2P_DISABLE",
    "SHM_DISABLE",
    "NET_PLUGIN",
    "IB_TC",
    "IB_SL",
    "IB_TIMEOUT",
    "IB_RETRY_CNT",
    "NET_GDR_LEVEL",
    "NET_GDR_READ",
    "SOCKET_FAMILY",
    "MNNVL_ENABLE",
    "IB_SPLIT_DATA_ON_QPS",
)
"""Variables whose difference makes nodes unequally fast, or is a slip. NCCL_SOCKET_IFNAME, IB_HCA and IB_GID_INDEX may differ."""

PATHS = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_IBVERBS_LIB")
"""Variables that name a file to be read."""


class Facts(TypedDict):
    environ: Optional[Dict[str, str]]
    """The variables that look like NCCL's; None when the environment could not be read, for `reason`."""
    reason: Optional[str]
    absent: List[str]
    """Files named by PATHS, and folders of NCCL_DEBUG_FILE, that are not there."""


def collect(host: Host) -> Facts:
    try:
        told = host.environ()
    except HostError as error:
        return {"environ": None, "reason": str(error), "absent": []}
    environ = {name: value for name, value in told.items() if environment.LOOKS_LIKE_NCCL.match(name)}
    paths = [environ[name] for name in PATHS if environ.get(name, "").startswith("/")]
    folder = environ.get("NCCL_DEBUG_FILE", "").rpartition("/")[0]
    if folder.startswith("/") and "%" not in folder:
        paths.append(folder)
    return {"environ": environ, "reason": None, "absent": [path for path in paths if engine.absent(host, path)]}


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        settings = settings_of(snapshot, node)
        if settings is None:
            yield unknown(
                "the engine's environment could not be read: %s" % facts["reason"],
                node,
                source="environment",
                remedy="name a process of the engine with --pid, or the variables it will get with --env-file",
            )
            continue
        found = list(_judge_node(snapshot, node, facts, settings))
        yield from found
        if not any(finding.status.severity > 1 for finding in found):
            names = sorted(name for name in settings if name.startswith("NCCL_"))
            yield ok(
                "%s set, none amiss" % counted(len(names), "NCCL variable") if names else "no NCCL variable is set",
                node,
                source="environment",
                observed={name: settings[name].value for name in names},
            )
    yield from _between_nodes(snapshot)


def _judge_node(snapshot: Snapshot, node: str, facts: Facts, settings: Dict[str, Setting]) -> Iterator[Finding]:
    for name, setting in settings.items():
        if setting.origin == "environment":
            yield from _judge_setting(node, name, setting.value, release(snapshot, node))
    for path in facts["absent"]:
        names = [name for name, setting in settings.items() if setting.value.startswith(path)]
        yield warn(
            "%s names %s, which is not there" % (", ".join(names), path),
            node,
            source="environment",
            observed=path,
            expected="a path that exists on every node",
            cause="env-unknown-or-invalid",
            remedy="correct or unset " + ", ".join(names),
            setting=names[0] if names else None,
        )
    values = {name: setting.value for name, setting in settings.items()}
    for trouble in contradictions.find(values, _machine(snapshot, node), release(snapshot, node)):
        yield (fail if trouble.fatal else warn)(
            trouble.summary,
            node,
            source=settings[trouble.name].origin,
            observed="%s=%s" % (trouble.name, values[trouble.name]),
            expected=trouble.expected,
            cause=trouble.cause,
            remedy=trouble.remedy,
            setting=trouble.name,
        )


def _judge_setting(node: str, name: str, value: str, version: Optional[Version]) -> Iterator[Finding]:
    problem = environment.name_problem(name, version) or environment.value_problem(name, value)
    if problem is None:
        return
    if problem.kind == "noted":
        yield skip(problem.summary, node, source="environment", setting=name)
    else:
        yield warn(
            problem.summary,
            node,
            source="environment",
            observed="%s=%s" % (name, value),
            expected=problem.expected,
            cause="env-unknown-or-invalid",
            remedy=problem.remedy,
            setting=name,
        )


def _machine(snapshot: Snapshot, node: str) -> contradictions.Machine:
    interfaces = snapshot.facts(node, "interfaces")
    rdma = snapshot.facts(node, "rdma-devices")
    return contradictions.Machine(
        [link["name"] for link in interfaces["links"]] if interfaces else None,
        [device["name"] for device in rdma["devices"]] if rdma else None,
        any(port["state"] == "ACTIVE" for device in rdma["devices"] for port in device["ports"]) if rdma else False,
        several(snapshot),
    )


def _between_nodes(snapshot: Snapshot) -> Iterator[Finding]:
    told: Dict[str, Mapping[str, Setting]] = {}
    for node, _facts in snapshot.each(PROBE.id):
        settings = settings_of(snapshot, node)
        if settings is not None:
            told[node] = settings
    if len(told) < 2:
        return
    for short in (*MUST_BE_EQUAL, *SHOULD_BE_EQUAL):
        yield from _differs(told, "NCCL_" + short, short in MUST_BE_EQUAL)
    yield from _same_host_id(told)


def _differs(told: Mapping[str, Mapping[str, Setting]], name: str, fatal: bool) -> Iterator[Finding]:
    values: Dict[Optional[str], List[str]] = {}
    for node, settings in told.items():
        values.setdefault(settings[name].value if name in settings else None, []).append(node)
    if len(values) < 2:
        return
    odd = min(values.values(), key=len)
    observed: Dict[str, Any] = {"not set" if value is None else value: nodes for value, nodes in values.items()}
    yield (fail if fatal else warn)(
        "%s differs between nodes: %s" % (name, parity.shared(values)),
        odd[0],
        source="environment of each node",
        observed=observed,
        expected="one value on all nodes",
        cause="env-unknown-or-invalid",
        setting=name,
        remedy="set %s alike on every node (a value set in a shell reaches only that node), or unset it on all" % name,
    )


def _same_host_id(told: Mapping[str, Mapping[str, Setting]]) -> Iterator[Finding]:
    by_value: Dict[str, List[str]] = {}
    for node, settings in told.items():
        if "NCCL_HOSTID" in settings:
            by_value.setdefault(settings["NCCL_HOSTID"].value, []).append(node)
    for value, nodes in by_value.items():
        if len(nodes) > 1:
            yield fail(
                "NCCL_HOSTID is %s on %s: NCCL takes them for one machine and tries shared memory between them"
                % (value, fold(nodes)),
                nodes[0],
                source="environment of each node",
                observed={value: nodes},
                expected="a value of its own on each node, or none",
                cause="env-unknown-or-invalid",
                remedy="unset NCCL_HOSTID on every node",
                setting="NCCL_HOSTID",
            )


PROBE = Probe(
    "nccl-environment",
    "NCCL's variables are right, and alike on all nodes",
    judge,
    collect,
    needs=("interfaces", "nccl-conf-files", "rdma-devices"),
)
