"""The lines that name a communicator: Init START, Init COMPLETE, Destroy, Abort, Revoke, in the words of all versions."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

_COMM = re.compile(
    rb"(?:\[Rank \d+\] )?(?:(?P<call>\w{1,60}) )?comm (?P<pointer>0x[0-9a-f]+|\(nil\)) rank (?P<rank>\d{1,9}) n[rR]anks (?P<nranks>\d{1,9}) "
    rb"cudaDev (?P<cuda>-?\d{1,5})(?: nvmlDev (?P<nvml>-?\d{1,5}))? busId (?P<bus>[0-9a-f]{1,16})(?P<rest>[^-\n]{0,300}(?:-\d[^-\n]{0,100})*)- "
    rb"(?P<what>Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE|Abort START|Destroy START|Revoke \w+)"
)
_COMM_REST = re.compile(rb"(commId|parent|color) (0x[0-9a-f]+|-?\d+)")


class Said(NamedTuple):
    """A line that names a communicator."""

    call: Optional[str]
    pointer: str
    rank: int
    nranks: int
    cuda_dev: int
    nvml_dev: Optional[int]
    bus_id: str
    comm_id: Optional[str]
    parent: Optional[str]
    color: Optional[int]
    what: str  # Init START, Init COMPLETE, Destroy COMPLETE …


def read(message: bytes) -> Optional[Said]:
    """None when it is no such line, or a cut one."""
    match = _COMM.match(message)
    if not match:
        return None
    call, pointer, rank, nranks, cuda, nvml, bus, rest, what = match.groups()
    more = dict(_COMM_REST.findall(rest))
    comm_id, parent, color = more.get(b"commId"), more.get(b"parent"), more.get(b"color")
    return Said(
        _text(call) if call else None, _text(pointer), int(rank), int(nranks), int(cuda), int(nvml) if nvml else None, _text(bus),
        _text(comm_id) if comm_id else None, _text(parent) if parent else None, int(color, 0) if color else None, _text(what),
    )  # fmt: skip


def identity(message: bytes) -> bytes:
    """The text that Init START and Init COMPLETE of one communicator share."""
    return message[message.find(b"comm 0x") : message.rfind(b"- Init ")].rstrip()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
