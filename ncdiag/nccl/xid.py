"""Xid and SXid lines of the kernel log: what the GPU or NVSwitch driver reports, and whether it means hardware.

Source: NVIDIA, "Xid errors" and the NVSwitch/Fabric Manager guide (SXid); the kernel line is `NVRM: Xid (PCI:0000:07:00): 79, …`.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, NamedTuple, Optional

_LINE = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+),?\s*(.*)")
_SWITCH = re.compile(r"SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+),?\s*(.*)")

HARDWARE = {
    48: "double-bit ECC error",
    61: "internal micro-controller halt",
    62: "internal micro-controller halt",
    64: "row remapping or page retirement failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high rate of single-bit ECC errors",
    95: "uncontained ECC error",
    110: "security fault",
    119: "GSP does not answer",
    120: "GSP error",
    121: "C2C link error",
    136: "link training failed",
    137: "NVLink flow-control error",
    140: "unrecovered ECC error",
    143: "GPU initialisation failed",
    145: "NVLink RLW error",
    149: "NVLink NETIR error",
    150: "NVLink MSE error",
    154: "the GPU needs a reset or reboot",
    155: "NVLink disabled by software",
    160: "high rate of remapped rows",
}
"""Codes at which the GPU, a link or its firmware is in trouble."""

MEMORY = {63: "row remapping or page retirement recorded", 94: "contained ECC error"}
"""Memory errors that were dealt with; a reset brings the spare row into use."""

SOFTWARE = {
    8: "GPU stopped processing", 13: "graphics engine exception", 31: "memory page fault", 32: "corrupted push buffer",
    43: "GPU stopped processing", 45: "earlier fault's clean-up", 68: "video processor exception", 69: "graphics engine exception",
    109: "context switch time-out",
}  # fmt: skip
"""Mostly the program's own fault: an illegal access of a kernel."""


class Event(NamedTuple):
    """One report. `address` without the function, as the driver writes it."""

    code: int
    address: str
    text: str
    switch: bool  # SXid

    @property
    def kind(self) -> str:
        """hardware, memory, software or other."""
        if self.switch:
            return "hardware"
        for kind, table in (("hardware", HARDWARE), ("memory", MEMORY), ("software", SOFTWARE)):
            if self.code in table:
                return kind
        return "other"

    @property
    def meaning(self) -> str:
        if self.switch:
            return self.text or "NVSwitch error"
        return (
            HARDWARE.get(self.code)
            or MEMORY.get(self.code)
            or SOFTWARE.get(self.code)
            or self.text
            or "not documented here"
        )


def find(lines: Iterable[str]) -> List[Event]:
    """All reports in the order of the log. Injected or masked ones cannot be told apart."""
    events = []
    for line in lines:
        event = parse(line)
        if event is not None:
            events.append(event)
    return events


def parse(line: str) -> Optional[Event]:
    for pattern, switch in ((_LINE, False), (_SWITCH, True)):
        match = pattern.search(line)
        if match:
            return Event(int(match.group(2)), match.group(1).lower(), match.group(3).strip()[:200], switch)
    return None


def counted(events: Iterable[Event]) -> Dict[Event, int]:
    """One event of each code and device -> how often it came; the texts of the later ones are dropped."""
    first: Dict[str, Event] = {}
    times: Dict[Event, int] = {}
    for event in events:
        key = f"{event.switch}/{event.code}/{event.address}"
        known = first.setdefault(key, event)
        times[known] = times.get(known, 0) + 1
    return times
