"""`nvidia-smi --query-gpu=… --format=csv` by column name (links, slow-downs, errors, row remaps), and the links of `nvidia-smi -q` and `lspci -vv`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line

_UNIT = re.compile(r"\s*\[[^\]]*\]$")
_NUMBER = re.compile(r"^(\d+(?:\.\d+)?)")
_ASKED = re.compile(r"--query-gpu=[\"']?(?P<columns>[a-z][\w.,]*)")
_ON = re.compile(r"^(?:Active|Yes|1)$", re.I)
_HELD = re.compile(
    r"^clocks_(?:throttle|event)_reasons\.(?:hw_slowdown|hw_thermal_slowdown|sw_thermal_slowdown|hw_power_brake_slowdown)$"
)
_ALONE = re.compile(
    r"^(?:clocks_(?:throttle|event)_reasons|ecc\.errors|remapped_rows|retired_pages)\.[\w.]+(?: \[[^\]]*\])?$"
)
"""A heading of one column; a row of it is a word or a number."""
_VALUE = re.compile(r"^(?:Active|Not Active|Yes|No|\d+|0x[0-9a-fA-F]+|\[?N/A\]?)$")
_ERRORS = re.compile(r"^ecc\.errors\.uncorrected\.volatile\.(?:total|device_memory|dram|sram)$")


_HOSTED = re.compile(r"(?P<node>[A-Za-z][\w.-]{0,80}): (?=\S)")
"""What pdsh, clush and the like put in front of a row."""
_MASKED = re.compile(r"^clocks_(?:throttle|event)_reasons\.active$")
_REASONS = {
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
"""Bits of that mask that hold a clock down; rest, a chosen clock and the power limit do not count. Source: NVML, nvmlClocksEventReasons."""


_IDLE = 0x1  # nothing runs on the GPU


def _bits(mask: str) -> int:
    """A mask as a number; 0 where it is none."""
    return int(mask, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", mask) else 0


def _reasons(mask: str) -> str:
    """The reasons in a mask, "" for none."""
    return ", ".join(name for bit, name in _REASONS.items() if _bits(mask) & bit)


REST_MHZ = 600
"""A clock below it is that of a GPU without work; those that are held down run at about 1000 and more, or at a tenth of their power."""


def _number(text: str) -> float | None:
    match = _NUMBER.match(text)
    return float(match[1]) if match else None


class Query:
    """Rows of such tables, one a GPU."""

    triggers = (
        "index, ",
        "pci.bus_id",
        "pcie.link.",
        "clocks_throttle_reasons.",
        "clocks_event_reasons.",
        "ecc.errors.",
        "remapped_rows.",
        "retired_pages.",
        "gpu_name",
        "index,name",
        "uuid, ",
        "--query-gpu=",
    )

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._heading: Line | None = None
        self._signals: list[Signal] = []
        self._last: Line | None = None
        self._node = ""
        """Whose row is read, where a tool for many nodes names it."""

    @property
    def calm(self) -> Line | None:
        """The last row of tables that show nothing wrong."""
        return None if self._signals else self._last

    def take(self, line: Line) -> bool:
        asked = _ASKED.search(line.text)
        if asked:
            self._columns, self._heading = asked["columns"].split(","), line
            return True
        cells = [cell.strip() for cell in line.text.split(",")]
        names = [_UNIT.sub("", cell) for cell in cells]
        if _ALONE.match(line.text.strip()) or (
            len(cells) > 1 and all(re.match(r"^[a-z][\w.]*$", name) for name in names)
        ):
            self._columns, self._heading = names, line
            return True
        hosted = _HOSTED.match(line.text) if self._columns else None
        if hosted:
            cells[0] = cells[0][hosted.end() :].lstrip()
        whole = len(cells) == len(self._columns) and (len(cells) > 1 or _VALUE.match(cells[0]) is not None)
        if self._columns and whole and len(self._signals) < 1000:
            self._node = hosted["node"] if hosted else ""
            self._judge(dict(zip(self._columns, cells, strict=True)), line)
            self._last = line
            return True
        self._columns = []
        return False

    def _judge(self, row: Mapping[str, str], line: Line) -> None:
        device = row.get("index") or row.get("pci.bus_id") or row.get("gpu_bus_id") or row.get("uuid") or ""
        for kind in ("width", "gen"):
            now, most = _number(row.get(f"pcie.link.{kind}.current", "")), _number(row.get(f"pcie.link.{kind}.max", ""))
            if now and most and now < most:
                idle = (
                    kind == "gen"
                    and (_number(row.get("utilization.gpu", "0")) or 0) < 5
                    and row.get("pstate", "P8") not in ("P0", "P1", "P2")
                )
                clock = _number(row.get("clocks.current.sm") or row.get("clocks.sm") or row.get("clocks.gr") or "")
                mask = next((value for name, value in row.items() if _MASKED.match(name)), "")
                if kind == "gen" and _bits(mask) & _IDLE:
                    continue
                if idle and ("pstate" in row or (clock is not None and clock < REST_MHZ)):
                    continue  # at rest, as it should be
                unit = "lanes wide" if kind == "width" else "generations"
                self._say(
                    "pcie-degraded",
                    Says.HINT if idle else Says.STRONG,
                    f"the PCIe link of GPU {device} is {now:.0f} of {most:.0f} {unit}"
                    + (" (a link at rest may be slower)" if idle else ""),
                    device,
                    line,
                )
        for name, value in row.items():
            if _HELD.match(name) and _ON.match(value):
                self._say(
                    "gpu-throttled",
                    Says.STRONG,
                    f"the clock of GPU {device} is held down ({name.rpartition('.')[2]})",
                    device,
                    line,
                )
            elif _MASKED.match(name) and (held := _reasons(value)):
                self._say(
                    "gpu-throttled", Says.STRONG, f"the clock of GPU {device} is held down ({held})", device, line
                )
            elif _ERRORS.match(name) and (_number(value) or 0) > 0:
                self._say(
                    "gpu-hardware-fault",
                    Says.STRONG,
                    f"GPU {device} has {value} uncorrected memory errors",
                    device,
                    line,
                )
            elif name in ("remapped_rows.pending", "retired_pages.pending", "remapped_rows.failure") and _ON.match(
                value
            ):
                self._say(
                    "gpu-ecc-row-remap",
                    Says.STRONG,
                    f"a row remap or page retirement is {name.rpartition('.')[2]} on GPU {device}",
                    device,
                    line,
                )

    def _say(self, cause: str, says: Says, summary: str, device: str, line: Line) -> None:
        heading = [self._heading.evidence()] if self._heading else []
        self._signals.append(
            Signal(
                cause,
                says,
                f"{self._node}: {summary}" if self._node else summary,
                [line.evidence(), *heading],
                {"device": device, **({"node": self._node} if self._node else {})},
                condition=True,
                order=line.order,
            )
        )

    def end(self, source: str) -> None:
        self._columns = []

    def signals(self) -> Iterator[Signal]:
        yield from self._signals


_MOST = re.compile(r"LnkCap:.*?Width x(?P<width>\d+)")
_NOW = re.compile(r"LnkSta:.*?Width x(?P<width>\d+)")
_BLOCK_WIDTH = re.compile(r"^\s*(?P<key>Max|Current|Device Current|Device Max|Host Max)\s*:\s*(?P<width>\d+)x\s*$")


_WIDTH_FILE = re.compile(r"(?P<device>[\w:.-]+)/(?P<kind>current|max)_link_width(?::(?P<width>\d+))?")


class LinkWidths:
    """Widths of PCIe links where one block says what could be and what is."""

    triggers = ("Link Width", "LnkCap:", "LnkSta:", "current_link_width", "max_link_width")

    def __init__(self) -> None:
        self._files: list[tuple[str, str]] = []
        self._read: dict[tuple[str, str], tuple[int, Line]] = {}
        self._most: tuple[int, Line] | None = None
        self._signals: list[Signal] = []

    def take(self, line: Line) -> bool:
        files = _WIDTH_FILE.findall(line.text)
        if files:
            self._files = [] if files[0][2] else [(device, kind) for device, kind, _ in files]
            for device, kind, width in files:
                if width:
                    self._width(device, kind, int(width), line)
            return True
        if self._files and line.text.strip().isdecimal():
            device, kind = self._files.pop(0)
            self._width(device, kind, int(line.text), line)
            return True
        self._files = []
        block = _BLOCK_WIDTH.match(line.text)
        most, now = _MOST.search(line.text), _NOW.search(line.text)
        if most or (block and block["key"] == "Max"):
            self._most = (int((most or block)["width"]), line)  # type: ignore[index]
        elif (now or (block and block["key"] == "Current")) and self._most is not None:
            self._compare(int((now or block)["width"]), line)  # type: ignore[index]
        return "Link Width" in line.text or block is not None

    def _width(self, device: str, kind: str, width: int, line: Line) -> None:
        """One of the two sysfs files of a device; they are compared when both are read."""
        if len(self._read) < 10_000:
            self._read[(device, kind)] = width, line
        most, now = self._read.get((device, "max")), self._read.get((device, "current"))
        if most is not None and now is not None:
            self._most = most
            self._compare(*now)
            del self._read[(device, "max")], self._read[(device, "current")]

    def _compare(self, width: int, line: Line) -> None:
        if self._most is not None and 0 < width < self._most[0] and len(self._signals) < 1000:
            self._signals.append(
                Signal(
                    "pcie-degraded",
                    Says.STRONG,
                    f"a PCIe link is {width} of {self._most[0]} lanes wide",
                    [line.evidence(), self._most[1].evidence()],
                    condition=True,
                    order=line.order,
                )
            )
        self._most = None

    def end(self, source: str) -> None:
        self._most = None

    def signals(self) -> Iterator[Signal]:
        yield from self._signals
