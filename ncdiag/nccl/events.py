"""The error lines of NCCL: one row of `PATTERNS` a kind and wording, tried in order; the first that matches names the kind and its fields.

Source: the wordings of 2.18.3 to 2.32.3 (WARN texts, and INFO texts where NCCL lowers an expected error to INFO). Peers are `IP<PORT>` as
printed, split into `peer` and `peer_port`. `status` of a completion is ibv_wc_status: 5 (flush) always follows from another error.
A WARN that no row knows becomes kind `warning` with its whole text.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .log_facts import Event

RESULTS = {
    1: "unhandled CUDA error",
    2: "system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote error",
    7: "in progress",
    8: "timeout",
}
WC_STATUS = {
    0: "SUCCESS", 1: "LOC_LEN_ERR", 2: "LOC_QP_OP_ERR", 3: "LOC_EEC_OP_ERR", 4: "LOC_PROT_ERR", 5: "WR_FLUSH_ERR", 6: "MW_BIND_ERR",
    7: "BAD_RESP_ERR", 8: "LOC_ACCESS_ERR", 9: "REM_INV_REQ_ERR", 10: "REM_ACCESS_ERR", 11: "REM_OP_ERR", 12: "RETRY_EXC_ERR",
    13: "RNR_RETRY_EXC_ERR", 14: "LOC_RDD_VIOL_ERR", 15: "REM_INV_RD_REQ_ERR", 16: "REM_ABORT_ERR", 17: "INV_EECN_ERR",
    18: "INV_EEC_STATE_ERR", 19: "FATAL_ERR", 20: "RESP_TIMEOUT_ERR", 21: "GENERAL_ERR",
}  # fmt: skip
NUMBERS = frozenset(
    (
        "rank", "rank_a", "rank_b", "nranks", "version_a", "version_b", "status", "opcode", "len", "vendor_err", "qp", "port",
        "errno", "attempt", "of", "attempts", "wait_ms", "received", "expected", "bytes", "cuda_code", "gid_index", "gpu_a",
        "gpu_b", "dev_a", "dev_b", "pattern", "clique_size", "min", "max", "result", "devices", "default", "from_mbits_s",
        "to_mbits_s", "local_rank", "ours", "theirs",
    )
)  # fmt: skip
SECONDARY = "secondary"
_PEER = r"(?P<peer>\[?[0-9A-Za-z.:%_-]+\]?)<(?P<peer_port>[\w-]*)>"
_DEV = r"(?P<device>[^\s:,]+)(?::(?P<port>\d+))?"


class Pattern(NamedTuple):
    """One wording of one kind; its named groups are the fields."""

    kind: str
    expression: re.Pattern[str]
    secondary: bool


def _rows(*rows: Tuple[str, ...]) -> List[Pattern]:
    return [Pattern(row[0], re.compile(row[1]), SECONDARY in row[2:]) for row in rows]


PATTERNS: List[Pattern] = _rows(
    # verbs
    ("ib-completion-error",
     r"Got completion from peer " + _PEER + r" with (?:error |status=)(?:(?P<status_name>[A-Za-z_ ]+)\()?(?P<status>\d+)\)?"
     r"(?:,? opcode[ =](?:[A-Z_a-z ]+\()?(?P<opcode>\d+)\)?)?(?:,? (?:len|reqSize)[ =](?P<len>\d+))?(?:,? vendor[ _]err[ =](?P<vendor_err>\d+))?"
     r"(?: qp_num=(?P<qp>\d+))?(?:,? (?:\(|req_type=)(?P<request>\w+)\)?)?"),
    ("ib-modify-qp-retry", r"Call to ibv_modify_qp failed with (?:error )?(?P<errno>\d+)? ?(?P<reason>[A-Z][\w ]+).*retrying (?P<attempt>\d+)/(?P<of>\d+) after (?P<wait_ms>\d+)"),
    ("ib-verbs-failed",
     r"Call to (?P<call>ibv_\w+) failed with (?P<errno>\d+) (?P<reason>[^,]+), on dev " + _DEV
     + r"(?:, curr state (?P<state>[^,]*), next state (?P<next_state>[^,]*))?(?:, local GID index (?P<gid_index>-?\d+))?"
     r"(?:, local GID (?P<local_gid>[^,\s]*))?(?:, remote GIDs? ?(?P<remote_gid>[^,\s]*))?"),
    ("ib-verbs-failed", r"Call to (?P<call>ibv_\w+) failed(?: with error (?P<reason>[^(\n]+?))?(?: errno (?P<errno>\d+))?\s*$"),
    ("ib-verbs-failed", r"(?P<call>ibv_\w+)\(\)? failed with error (?P<reason>[^,]+)"),
    ("ib-verbs-failed", r"(?P<call>ibv_\w+)\(\) returned (?P<errno>-?\d+)"),
    ("gid-table-changed", r"NET/IB : (?:" + _DEV + r" )?(?:Got (?:non-fatal )?async (?:error )?event ?: GID (?:table )?change|GID table changed)"),
    ("gid-refreshed", r"GID refreshed: idx (?P<from>-?\d+) -> (?P<gid_index>-?\d+)"),
    ("ib-async-event",
     r"(?:NET/IB ?: (?:(?!Got )" + _DEV + r" )?)?(?:Got )?(?P<severity>non-fatal )?async (?P<fatal>fatal )?(?:error )?event ?(?:on \w+ \([^)]*\))? ?: "
     r"(?P<event>[A-Za-z_ ]+[A-Za-z])"),
    ("ib-speed-change", r"NET/IB : " + _DEV + r" speed change detected: (?P<from_mbits_s>\d+) -> (?P<to_mbits_s>\d+) Mbps"),
    ("ib-device-unusable", r"NET/IB : Unable to (?P<action>open|query) device (?P<device>\S+)"),
    ("ib-device-unusable", r"NET/IB : Unable to (?P<action>query) port(?:_num)? (?P<port>\d+)"),
    ("ib-device-failed", r"NET/IB.*[Dd]evice (?P<device>\S+) marked as failed"),
    ("pci-path-hidden", r"Could not find real path of (?P<path>\S*/pci_bus/[fF]{4,}[:/]\S*)"),  # NVSwitches, in a virtual machine
    ("ib-path-unresolved", r"Could not find real path of (?P<path>\S+)"),
    ("ib-no-ip-interface", r"NET/IB : No IP interface found"),
    ("ib-gid-attrs-unreadable", r"open failed in ncclIbRoceGetVersionNum: (?P<reason>.+)"),
    ("ib-devices-incompatible", r"NET/IB : Attempted to (?P<action>merge|connect) incompatible devices"),
    ("ib-devices-incompatible", r"Remote (?P<device>\S+) device is incompatible with the local"),
    ("ib-devices-mismatched", r"mismatched physical devices between local \((?P<local>[^)]*)\) and remote \((?P<remote>[^)]*)\)"),
    ("ib-wqe-slow", r"NET/IB: WQE (?P<what>slow|stall)"),
    ("collective-mismatch", r"peer (?:" + _PEER + r" )?collective mismatch error, local size (?P<expected>\d+) remote size (?P<received>\d+)"),
    ("collective-mismatch", r"NET/IB : req .*posted incorrect receive info"),
    ("collective-mismatch", r"NET/Socket : peer " + _PEER + r" message truncated : receiving (?P<received>\d+) bytes instead of (?P<expected>\d+)"),
    ("message-truncated", r"Message truncated : received (?P<received>\d+) bytes instead of (?P<expected>\d+)"),
    ("comm-fatal-error", r"communicator encountered a fatal error \(detected in (?P<detected_in>[^)]*)\)", SECONDARY),
    # bootstrap and sockets
    ("bootstrap-no-interface", r"Bootstrap ?: no socket interface found|no socket interface found"),
    ("oob-no-device", r"no device found matching (?P<filter>\S+?),? verify NCCL_OOB_NET_IFNAME"),
    ("no-interface-in-subnet", r"No interface found in the same subnet as remote address " + _PEER),
    ("comm-id-invalid", r"Invalid NCCL_COMM_ID"),
    ("bootstrap-duplicate-rank", r"Bootstrap Root : rank (?P<rank>\d+) of (?P<nranks>\d+) ranks has already checked in"),
    ("bootstrap-rank-count", r"Bootstrap Root : mismatch in (?:rank count|info) from procs,?(?: nranks)? (?P<ours>\d+) (?::|vs) (?P<theirs>\d+)"),
    ("connect-retry", r"[Cc]onnect(?: to " + _PEER + r")? returned (?P<reason>[^,]+), retrying(?: \((?P<attempt>\d+)/(?P<of>\d+)\) after sleep for (?P<wait_ms>\d+))?"),
    ("connect-gave-up", r"[Cc]onnect(?: to " + _PEER + r")? returned (?P<reason>[^,]+), exceeded error retry count(?: after (?P<attempts>\d+)| \((?P<tries>\d+)\))?"),
    ("connect-gave-up", r"exceeded retries \((?P<attempts>\d+)\)"),
    ("connect-failed", r"[Cc]onnect to " + _PEER + r" returned -?\d+\([^)]*\) errno (?P<errno>\d+)\((?P<reason>[^)]*)\)"),
    ("connect-failed", r"[Cc]onnect to " + _PEER + r" failed ?: (?P<reason>[^\n]+)"),
    ("connect-failed", r"Call to connect(?: to " + _PEER + r")? failed ?: (?P<reason>[^\n]+)"),
    ("connection-closed", r"Connection closed by (?:remote )?peer(?: " + _PEER + r")?", SECONDARY),
    ("connection-closed", r"Connection closed by localRank (?P<local_rank>\d+)", SECONDARY),
    ("socket-error", r"Call to (?P<call>recv|send)(?: (?:from|to) " + _PEER + r")? failed ?: (?P<reason>[^\n]+)", SECONDARY),
    ("socket-error", r"[Oo]pt: Call to (?P<call>\w+) (?:\w+ )?" + _PEER + r" failed ?: (?P<reason>[^\n]+)", SECONDARY),
    ("accept-failed", r"[Ss]ocketTryAccept: (?P<reason>[^\n]+)"),
    ("socket-magic", r"wrong (?:magic|type) \S+ != \S+|socket magic mismatch|didn't receive a valid magic(?: from " + _PEER + r")?"),
    ("socket-recv-polling", r"Socket recv failed while polling for opId", SECONDARY),
    # network plugins
    ("net-unavailable", r"Failed to initialize any NET plugin"),
    ("net-unavailable", r"Error: network (?P<network>.+?) not found"),
    ("net-plugin-unsupported", r"External network plugin (?P<plugin>.+?) is unsupported"),
    ("ofi-no-provider", r"NET/OFI .*No eligible providers were found"),
    ("ofi-provider", r"NET/OFI Selected [Pp]rovider is (?P<provider>[^,\s]+)(?:, fabric is (?P<fabric>\S+))?(?:.*\(found (?P<devices>\d+) nics\))?"),
    ("ib-unroutable", r"remote FLID configured as zero"),
    ("net-device-count", r"mixed local Net device counts across ranks \(min (?P<min>\d+), max (?P<max>\d+)\)"),
    # GPUs, ranks, memory
    ("duplicate-gpu", r"Duplicate GPU detected : rank (?P<rank_a>\d+) and rank (?P<rank_b>\d+) both on CUDA device (?P<bus_id>[0-9a-f]+)"),
    ("duplicate-gpu", r"Multiple [Rr]anks (?:are using|detected using) the same GPU"),
    ("version-mismatch", r"Mismatched NCCL version detected : rank (?P<rank_a>\d+) version (?P<version_a>\d+) rank (?P<rank_b>\d+) version (?P<version_b>\d+)"),
    ("version-mismatch", r"Mismatched NCCL git versions? detected"),
    ("environment-mismatch", r"NCCL environment: mismatch across (?P<nranks>\d+) ranks in comm \S+ for (?P<variable>\w+)"),
    ("local-ranks-failed", r"Failed to determine local ranks(?: rank (?P<rank>\d+))?"),
    ("nvls-bind-failed", r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory of size (?P<bytes>\d+) : CUDA error (?P<cuda_code>\d+) '(?P<reason>[^']*)'"),
    ("cuda-failure", r"Cuda failure (?P<cuda_code>\d+)? ?'(?P<reason>[^']*)'?"),
    ("cuda-failure", r"Failed to (?:CUDA |cuda)(?P<call>\w+) (?P<bytes>\d+) bytes"),
    ("host-memory", r"Failed to (?:host alloc|malloc|calloc|mmap)\D{0,40}(?P<bytes>\d+) bytes"),
    ("shm-failed", r"Error while (?P<action>\w+)(?: to)? shared memory segment (?P<path>.*?) ?\(size (?P<bytes>\d+)\)(?:, error: (?P<reason>.+?) \((?P<errno>\d+)\))?"),
    ("shm-failed", r"Error: failed to (?P<action>extend) (?P<path>\S+) to (?P<bytes>\d+) bytes(?:, error:? (?P<reason>[^(\n]+?) \((?P<errno>\d+)\))?"),
    ("shm-failed", r"Error: failed to (?P<action>create) shared memory file (?P<path>\S+?),? error:? (?P<reason>[^(\n]+?) \((?P<errno>\d+)\)"),
    ("shm-retry", r"fallocate: Failed to extend (?P<path>\S+)"),
    ("mnnvl-unavailable", r"MNNVL \(cliqueSize (?P<clique_size>\d+)\) is available but not"),
    ("p2p-broken", r"P2P is disabled between NVLINK connected GPUs (?P<gpu_a>\d+) and (?P<gpu_b>\d+)"),
    ("p2p-disabled", r"P2P is disabled between connected GPUs (?P<gpu_a>\d+) and (?P<gpu_b>\d+)"),
    ("p2p-refused", r"Could not enable P2P between dev (?P<dev_a>\d+)\S* and dev (?P<dev_b>\d+)|peer query failed between dev|Legacy IPC not supported"),
    ("cumem-host-unavailable", r"cuMem host allocations do not appear to be working"),
    ("affinity-empty", r"Affinity for GPU (?P<gpu_a>\d+) is empty, ignoring"),
    ("no-transport", r"No transport found for rank (?P<rank_a>\d+)\[\w+\] -> rank (?P<rank_b>\d+)\["),
    ("graph-fallback", r"Could not find a path for pattern (?P<pattern>\d+), falling back"),
    ("topology-file", r"Could not open XML topology file (?P<path>\S+) ?: ?(?P<reason>[^\n]+)"),
    ("topology-file", r"^XML |XML [Pp]arse|Topology file|ncclTopo\w* .*XML"),
    ("library-missing", r"(?:Failed to open|Cou(?:ld|nt) not open|Count not open) (?P<library>\S*lib\w[\w.+-]*?\.so[\w.]*)"),
    ("nvml-failed", r"(?P<call>nvml\w+)\(.*?\)? ?failed:? (?P<reason>[^\n]+)"),
    ("param-invalid", r"Invalid value (?P<value>.*?) for (?P<variable>\w+), using default (?P<default>-?\d+)"),
    ("param-unused", r"ENV:? (?P<variable>\w+) is (?P<what>unused|deprecated|private)"),
    ("comm-destroyed", r"comm \S+ has already been destroyed"),
    ("usage-error", r"Either none or all communicators in a ncclGroup|ncclGroupEnd: not in a group|: invalid (?:\w+ )*(?:argument|type|root|device|rank|count)|Invalid config"),
    # what follows from other errors
    ("proxy-error", r"\[(?:Service thread|Proxy Service(?: \d+)?|Proxy Progress|Proxy Thread)\].*(?:[Ee]rror|[Ff]ailed|Could not)", SECONDARY),
    ("job-failed", r"ncclAsyncJobComplete: job|commReclaim: ", SECONDARY),
    ("propagation", r"^\S{1,200}:\d{1,7} (?:\([^)]*\) )?-> (?P<result>\d+)(?: \[(?P<thread>[^\]]*)\])?\s*$", SECONDARY),
    ("hint", r"^HINT: (?P<hint>.*)", SECONDARY),
    ("ras-socket", r"RAS failed to establish a client listening socket|Continuing in spite of a RAS"),
    ("syscall-failed", r"Call to (?P<call>\w+)(?: \w+)? failed ?: (?P<reason>[^\n]+)"),
)  # fmt: skip

HARMLESS = frozenset(
    (
        "connect-retry", "gid-table-changed", "gid-refreshed", "ib-speed-change", "ofi-provider", "p2p-disabled", "p2p-refused",
        "cumem-host-unavailable", "affinity-empty", "graph-fallback", "param-invalid", "param-unused", "ras-socket", "socket-magic", "shm-retry",
        "ib-devices-mismatched", "ib-unroutable", "ib-wqe-slow", "net-device-count", "hint", "diagnostics", "environment-mismatch",
        "library-missing", "ib-modify-qp-retry", "pci-path-hidden",
    )
)  # fmt: skip  # not by themselves the end of a rank
_HARMLESS_EVENTS = re.compile(r"active|change|reregist|last WQE|established", re.I)

# An INFO line is worth the table only if one of these stands in it.
INFO_HINTS = re.compile(
    rb"retrying|exceeded|[Ff]ailed|async |-> \d|HINT: |Connection closed|Count not open|Could not (?:open|enable|find (?:a path|real))|Error|error|"
    rb"GID (?:table|refreshed)|P2P is disabled|Legacy IPC|cuMem host|is empty, ignoring|Invalid value|is unused|is deprecated|is private|"
    rb"[Ss]elected [Pp]rovider|No eligible|mixed local|mismatch|marked as failed|speed change|WQE s|magic|is unsupported|Unable to|[Aa]bort"
)
_NOISE = re.compile(r"Failed to find nccl\w+Plugin|No plugin found|Failed to (?:find|open) \S*(?:symbol|mlx5dv)")
NONE, NOISE = -1, -2
"""Rows of messages that no pattern finds something in, and of such that say nothing remarkable."""
_DIGITS = bytes(48 if 48 <= byte < 58 else byte for byte in range(256))
_GID = re.compile(
    r"localGid (?P<local_gid>[0-9a-fA-F:.]+)|remoteGids? ?(?P<remote_gid>[0-9a-fA-F:.]+)|\bhca (?P<device>[\w.+-]+)"
)


def ends_a_rank(event: Event) -> bool:
    """Whether an event by itself can be why a rank got no further: no follow-up of another error, no notice."""
    if event.secondary or event.kind in HARMLESS:
        return False
    return not (event.kind == "ib-async-event" and _HARMLESS_EVENTS.search(event.fields.get("event", "")))


def shape(message: bytes) -> bytes:
    """The message with one zero for every number: what no pattern looks at, but for names (P2P) that nobody numbers otherwise. Those of one shape are of one row."""
    plain = message.translate(_DIGITS)
    while b"00" in plain:
        plain = plain.replace(b"00", b"0")
    return plain


def row(message: str) -> int:
    """Which pattern is the first that finds something, as its index; NONE, NOISE."""
    if _NOISE.search(message):
        return NOISE
    return next((index for index, one in enumerate(PATTERNS) if one.expression.search(message)), NONE)


def find(message: str, known: Optional[int] = None) -> Tuple[int, Optional[re.Match[str]]]:
    """The row of a message, and what its pattern finds. `known`: the row of another message of its shape."""
    index = row(message) if known is None else known
    match = PATTERNS[index].expression.search(message) if index >= 0 else None
    if match is None and index >= 0:  # a number is longer than any that the pattern reads
        index = row(message)
        match = PATTERNS[index].expression.search(message) if index >= 0 else None
    return index, match


def read(
    message: str, level: str, index: int, match: Optional[re.Match[str]]
) -> Optional[Tuple[str, Dict[str, Any], bool]]:
    """Kind, fields and whether it is secondary; None for an INFO line that says nothing remarkable. `index` and `match`: of `find`."""
    if level == "DIAG":
        return "diagnostics", {}, False
    if match is None:
        return ("warning", {}, False) if level != "INFO" and index != NOISE else None
    kind, _, secondary = PATTERNS[index]
    fields = {name: _value(name, value) for name, value in match.groupdict().items() if value}
    return kind, _more(kind, fields, message), secondary or fields.get("status") == 5


def steady(index: int, match: Optional[re.Match[str]]) -> Optional[Tuple[Any, ...]]:
    """What tells a message from others of its row, faster than its fields do; None where it takes more than that."""
    if match is None or not _STEADY[index]:
        return None
    found = match.group(*_STEADY[index], 0)[:-1]
    return found if any(found) else None


def _value(name: str, value: str) -> Any:
    value = value.strip()
    return int(value) if name in NUMBERS and value.lstrip("-").isdecimal() else value


def _more(kind: str, fields: Dict[str, Any], message: str) -> Dict[str, Any]:
    if kind == "ib-completion-error":
        fields["status_name"] = WC_STATUS.get(fields["status"], "unknown")
        for match in _GID.finditer(message):
            fields.update({name: value for name, value in match.groupdict().items() if value})
    elif kind == "propagation":
        fields["result_name"] = RESULTS.get(fields["result"], "unknown")
    elif kind == "connect-gave-up" and "tries" in fields:
        fields["attempts"] = int(fields.pop("tries"))
    elif kind == "ib-async-event":
        fields["severity"] = fields.pop("fatal", None) or fields.get("severity", "unknown")
    return fields


_VOLATILE = frozenset(
    ["opcode", "len", "qp", "attempt", "wait_ms", "peer_port", "remote_gid", "received", "bytes", "path"]
)
_POINTER = re.compile(r"0x[0-9a-f]+|\d+")
_STEADY = [
    ()
    if one.kind == "ib-completion-error"
    else tuple(name for name in one.expression.groupindex if name not in _VOLATILE)
    for one in PATTERNS
]
"""Of each row the fields that do not change from try to try; () where others are read behind the pattern."""


def identity(fields: Dict[str, Any], message: str) -> Tuple[object, ...]:
    """What makes two events of one kind and process the same: the fields that do not change from try to try, else the text without numbers."""
    steady = tuple(sorted((name, str(value)) for name, value in fields.items() if name not in _VOLATILE))
    return steady or (_POINTER.sub("N", message[:300]),)
