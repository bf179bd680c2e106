"""NCCL settings that contradict each other or the machine, and what was left on from debugging. Pure; travels to nodes.

Source: NVIDIA/nccl src/transport/net_socket.cc, src/transport/net_ib, src/bootstrap.cc, src/debug.cc; NCCL user guide, environment variables.
"""

from __future__ import annotations

from typing import Callable, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from ncdiag.nccl.interfaces import parse
from ncdiag.nccl.settings import integer
from ncdiag.nccl.version import Version


class Machine(NamedTuple):
    """What the settings are held against. None: not read."""

    interfaces: Optional[Sequence[str]]
    rdma_devices: Optional[Sequence[str]]
    rdma_active: bool
    """At least one RDMA port is ACTIVE."""
    several_nodes: bool


class Trouble(NamedTuple):
    """One contradiction; `name` is the setting to change."""

    name: str
    summary: str
    expected: str
    remedy: str
    cause: str = "env-unknown-or-invalid"
    fatal: bool = False


Rule = Callable[[Mapping[str, str], Machine], Iterator[Trouble]]


def find(values: Mapping[str, str], machine: Machine, version: Optional[Version] = None) -> List[Trouble]:
    """Everything that is amiss. `values`: what NCCL sees, parameter files included."""
    found = [trouble for rule in RULES for trouble in rule(values, machine)]
    return [trouble for trouble in found if trouble.name in values]


def _on(values: Mapping[str, str], name: str) -> bool:
    return bool(integer(values.get(name, "")))


def _list_syntax(values: Mapping[str, str], machine: Machine) -> Iterator[Trouble]:
    """The sign counts once and in front, `^` before `=`; blanks belong to the names."""
    for name in ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_OOB_NET_IFNAME"):
        value = values.get(name, "")
        names = parse(value).names
        if any(item[:1] in "^=" for item in names):
            plain = ",".join(item.lstrip("^=") for item in names)
            yield Trouble(
                name,
                "%s=%s: a sign counts only at the very start, and ^ goes before =; NCCL takes %s for a name"
                % (name, value, " and ".join(item for item in names if item[:1] in "^=")),
                "one sign in front of the whole list",
                "export %s='%s%s'"
                % (name, "^=" if "^" in value and "=" in value else "^" if "^" in value else "=", plain),
            )
        if " " in value:
            yield Trouble(
                name,
                "%s=%s holds blanks, which NCCL takes for part of the names" % (name, value),
                "names, commas, no blanks",
                "export %s='%s'" % (name, value.replace(" ", "")),
            )
        if len(value) == 1 and name == "NCCL_SOCKET_IFNAME":
            yield Trouble(
                name,
                "NCCL_SOCKET_IFNAME=%s is one character, which NCCL ignores" % value,
                "two characters or more",
                "unset NCCL_SOCKET_IFNAME, or give it the interface's name",
            )


def _absent_names(values: Mapping[str, str], machine: Machine) -> Iterator[Trouble]:
    """Names in a list that nothing on this machine has. That none matches at all is judged where the choice is made."""
    wanted = parse(values.get("NCCL_SOCKET_IFNAME", ""))
    present = machine.interfaces
    if (
        present is not None
        and len(values.get("NCCL_SOCKET_IFNAME", "")) > 1
        and any(wanted.lets(name) for name in present)
    ):
        missing = [
            name
            for name in wanted.names
            if name[:1] not in "^= " and not any(wanted._replace(names=(name,), exclude=False).lets(p) for p in present)
        ]
        if missing and not wanted.exclude:
            yield Trouble(
                "NCCL_SOCKET_IFNAME",
                "NCCL_SOCKET_IFNAME names %s, which is not here (there are %s)"
                % (", ".join(missing), ", ".join(present)),
                "interfaces of this node",
                "take %s out of NCCL_SOCKET_IFNAME" % ", ".join(missing),
            )
    yield from _absent_hcas(values.get("NCCL_IB_HCA", ""), machine.rdma_devices)


def _absent_hcas(value: str, present: Optional[Sequence[str]]) -> Iterator[Trouble]:
    if not value or present is None:
        return
    wanted = parse(value)
    if present and not any(wanted.lets(name) for name in present):
        yield Trouble(
            "NCCL_IB_HCA",
            "NCCL_IB_HCA=%s leaves none of this node's RDMA devices (%s): NCCL falls back to sockets"
            % (value, ", ".join(present)),
            "a list that lets a device through",
            "unset NCCL_IB_HCA, or export NCCL_IB_HCA=%s" % present[0],
            "rdma-unavailable",
        )
    elif not present and not wanted.exclude:
        yield Trouble(
            "NCCL_IB_HCA",
            "NCCL_IB_HCA=%s names RDMA devices, and this node shows none" % value,
            "the RDMA devices it names",
            "pass /dev/infiniband and the devices into the container, or unset NCCL_IB_HCA",
            "rdma-unavailable",
        )
    for name in () if wanted.exact else wanted.names:
        more = [
            device
            for device in present
            if device != name and device.startswith(name) and device[len(name) :].isdecimal()
        ]
        if name in present and more:
            yield Trouble(
                "NCCL_IB_HCA",
                "NCCL_IB_HCA=%s: %s is a beginning, it takes %s too" % (value, name, ", ".join(more)),
                "exact names behind one =",
                "export NCCL_IB_HCA='%s=%s'" % ("^" if wanted.exclude else "", ",".join(wanted.names)),
            )


def _network_off(values: Mapping[str, str], machine: Machine) -> Iterator[Trouble]:
    net = values.get("NCCL_NET", "")
    if _on(values, "NCCL_IB_DISABLE") and net.upper() == "IB":
        yield Trouble(
            "NCCL_IB_DISABLE",
            "NCCL_NET=IB asks for what NCCL_IB_DISABLE=%s forbids: NCCL ends with an error" % values["NCCL_IB_DISABLE"],
            "one of the two",
            "unset NCCL_IB_DISABLE",
            "net-plugin-forced-unavailable",
            True,
        )
    elif _on(values, "NCCL_IB_DISABLE") and machine.rdma_active:
        yield Trouble(
            "NCCL_IB_DISABLE",
            "NCCL_IB_DISABLE=%s: NCCL uses TCP sockets although RDMA ports are ACTIVE" % values["NCCL_IB_DISABLE"],
            "not set",
            "unset NCCL_IB_DISABLE",
            "net-fallback-slow",
        )
    if net.lower() == "socket" and machine.rdma_active:
        yield Trouble(
            "NCCL_NET",
            "NCCL_NET=%s: NCCL uses TCP sockets although RDMA ports are ACTIVE" % net,
            "not set",
            "unset NCCL_NET",
            "net-fallback-slow",
        )


def _left_on(values: Mapping[str, str], machine: Machine) -> Iterator[Trouble]:
    """What people switch on to find a fault and forget."""
    both = _on(values, "NCCL_P2P_DISABLE") and _on(values, "NCCL_SHM_DISABLE")
    for name, effect in (
        ("NCCL_P2P_DISABLE", "GPUs of one node do not talk directly, NVLink included"),
        ("NCCL_SHM_DISABLE", "ranks of one node without P2P talk over the network"),
    ):
        if _on(values, name):
            yield Trouble(
                name,
                "%s=%s is on: %s%s"
                % (
                    name,
                    values[name],
                    effect,
                    "; with both off all traffic inside a node goes over the network" if both else "",
                ),
                "not set, unless P2P is known to be broken here",
                "unset " + name,
            )
    if values.get("NCCL_DEBUG", "").upper() == "TRACE":
        yield Trouble(
            "NCCL_DEBUG",
            "NCCL_DEBUG=%s is on: where NCCL was built with tracing every call is logged, and start-up slows down"
            % values["NCCL_DEBUG"],
            "WARN, or INFO while looking for a fault",
            "export NCCL_DEBUG=WARN",
        )
    if _on(values, "NCCL_CHECK_POINTERS"):
        yield Trouble(
            "NCCL_CHECK_POINTERS",
            "NCCL_CHECK_POINTERS=%s checks every buffer of every call" % values["NCCL_CHECK_POINTERS"],
            "not set",
            "unset NCCL_CHECK_POINTERS",
        )
    file = values.get("NCCL_DEBUG_FILE", "")
    if file and "%p" not in file and not file.startswith("/dev/"):
        yield Trouble(
            "NCCL_DEBUG_FILE",
            "NCCL_DEBUG_FILE=%s has no %%p: all ranks of a node write over the same file" % file,
            "a name with %h and %p",
            "export NCCL_DEBUG_FILE='%s.%%h.%%p'" % file.replace(".%h", ""),
        )
    elif file and "%h" not in file and machine.several_nodes and not file.startswith("/dev/"):
        yield Trouble(
            "NCCL_DEBUG_FILE",
            "NCCL_DEBUG_FILE=%s has no %%h: on a shared folder ranks of two nodes can write over each other" % file,
            "a name with %h and %p",
            "export NCCL_DEBUG_FILE='%s'" % file.replace("%p", "%h.%p"),
        )


def _numbers(values: Mapping[str, str], machine: Machine) -> Iterator[Trouble]:
    low, high = integer(values.get("NCCL_MIN_NCHANNELS", "")), integer(values.get("NCCL_MAX_NCHANNELS", ""))
    if low is not None and high is not None and low > high >= 1:
        yield Trouble(
            "NCCL_MIN_NCHANNELS",
            "NCCL_MIN_NCHANNELS=%d is more than NCCL_MAX_NCHANNELS=%d" % (low, high),
            "at most %d" % high,
            "unset NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS",
        )
    threads, sockets = (
        integer(values.get("NCCL_SOCKET_NTHREADS", "")) or 0,
        integer(values.get("NCCL_NSOCKS_PERTHREAD", "")) or 0,
    )
    if threads > 0 and sockets > 0 and threads * sockets > 64:
        yield Trouble(
            "NCCL_NSOCKS_PERTHREAD",
            "NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD is %d x %d = %d sockets a connection; NCCL cuts it to 64"
            % (threads, sockets, threads * sockets),
            "a product of at most 64",
            "export NCCL_NSOCKS_PERTHREAD=%d" % max(1, 64 // threads),
        )
    pkey = integer(values.get("NCCL_IB_PKEY", ""))
    if pkey is not None and pkey >= 128:
        yield Trouble(
            "NCCL_IB_PKEY",
            "NCCL_IB_PKEY=%s looks like a partition key; NCCL wants its index in the port's table"
            % values["NCCL_IB_PKEY"],
            "an index, usually 0 to 127",
            "find the index: grep -n . /sys/class/infiniband/*/ports/1/pkeys/*; export NCCL_IB_PKEY=<it>",
        )
    if "NCCL_IB_TIMEOUT" in values and integer(values["NCCL_IB_TIMEOUT"]) == 0:
        yield Trouble(
            "NCCL_IB_TIMEOUT",
            "NCCL_IB_TIMEOUT=0 waits for ever: a lost peer is never noticed",
            "20, its default",
            "unset NCCL_IB_TIMEOUT",
        )


def _static_id(values: Mapping[str, str], machine: Machine) -> Iterator[Trouble]:
    if values.get("NCCL_COMM_ID") and values.get("NCCL_SOCKET_IFNAME"):
        yield Trouble(
            "NCCL_COMM_ID",
            "NCCL_COMM_ID=%s decides the bootstrap's interface; NCCL_SOCKET_IFNAME=%s does not count for it"
            % (values["NCCL_COMM_ID"], values["NCCL_SOCKET_IFNAME"]),
            "one of the two",
            "unset NCCL_COMM_ID (torch and vLLM exchange the id themselves)",
        )


RULES: Sequence[Rule] = (_list_syntax, _absent_names, _network_off, _left_on, _numbers, _static_id)
