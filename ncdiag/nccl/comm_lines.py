"""The lines that name a communicator: Init START, Init COMPLETE, Destroy, Abort, Revoke, in the words of all versions."""

from __future__ import annotations

import re
from typing import Optional, Tuple

_COMM = re.compile(
    r"(?:\[Rank \d+\] )?(?:(?P<call>\w{1,60}) )?comm (?P<pointer>0x[0-9a-f]+|\(nil\)) rank (?P<rank>\d{1,9}) n[rR]anks (?P<nranks>\d{1,9}) "
    r"cudaDev (?P<cuda>-?\d{1,5})(?: nvmlDev (?P<nvml>-?\d{1,5}))?(?: busId (?P<bus>[0-9a-f]{1,16}))?(?: commId (?P<id>0x[0-9a-f]+))?"
    r"(?P<rest>[^-\n]{0,300}(?:-\d[^-\n]{0,100})*)- "
    r"(?P<what>Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE|Abort START|Destroy START|Revoke \w+)",
    re.A,
)
_REST = re.compile(r"(commId|parent|color) (0x[0-9a-f]+|-?\d+)", re.A)


# Call, pointer, rank, nranks, CUDA device, NVML device, bus id, commId, parent, color, what (Init START, Init COMPLETE, Destroy COMPLETE …)
Said = Tuple[
    Optional[str], str, int, int, int, Optional[int], Optional[str], Optional[str], Optional[str], Optional[int], str
]  # fmt: skip


def read(message: bytes) -> Optional[Said]:
    """None when it is no such line, or a cut one."""
    match = _COMM.match(message.decode("utf-8", "replace"))
    if not match:
        return None
    call, pointer, rank, nranks, cuda, nvml, bus, comm_id, rest, what = match.groups()
    parent = color = None
    if len(rest) > 1:
        more = dict(_REST.findall(rest))
        comm_id, parent, color = comm_id or more.get("commId"), more.get("parent"), more.get("color")
    return (
        call, pointer, int(rank), int(nranks), int(cuda), int(nvml) if nvml else None, bus, comm_id, parent,
        int(color, 16 if color.startswith("0x") else 10) if color else None, what,
    )  # fmt: skip
