"""What a PCIe link has and what it could have in one line, as loops over sysfs print them: `32.0 GT/s PCIe x8 max 32.0 GT/s PCIe x16`, `mlx5_2 8/16`.

Source: current_link_width, max_link_width, current_link_speed and max_link_speed of /sys/bus/pci/devices/*; Documentation/ABI/testing/sysfs-bus-pci.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line

_BOTH = re.compile(r"current_link_width\b.*\bmax_link_width\b|max_link_width\b.*\bcurrent_link_width\b")
_LANES = re.compile(r"(?<![\w.:/])[xX] ?(\d{1,2})(?![\w.:])")
_BARE = re.compile(r"(?<![\w.:/-])(1|2|4|8|12|16|32) ?[/ ,] ?(?:of )?(1|2|4|8|12|16|32)\s*$")
_SPEED = re.compile(r"(\d+(?:\.\d+)?) ?GT/s")
_PORT = re.compile(r"\d Gb/s(?:ec)? \(\d+X ")
"""The rate of an RDMA port, whose adapter does not slow its link at rest, as GPUs do."""
_DEVICE = re.compile(r"\b(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b")
_NODE = re.compile(r"^\s*(?P<node>[A-Za-z][\w-]*(?:\.[\w-]+)*): ")
_KERNEL = re.compile(r"limited by|capable of|available PCIe")
LINKS_LIMIT = 1000  # of one question


@dataclass
class _Link:
    kind: str
    """`lanes wide` or `GT/s`."""
    now: float
    most: float
    device: str
    node: str
    line: Line


@dataclass
class _Asked:
    """One question, which may be asked on several nodes."""

    device: str = ""
    answers: int = 0
    low: list[_Link] = field(default_factory=list)


class Lanes:
    """Answers of such loops."""

    triggers = ("max_link_width", "GT/s PCIe x", "GT/s x")

    def __init__(self) -> None:
        self._questions = [_Asked()]
        self._open = False
        """Whether a question for both widths was read, and its answers follow."""

    def take(self, line: Line) -> bool:
        text = line.text
        if "link_width" in text:
            device = _DEVICE.search(text)
            self._open = _BOTH.search(text) is not None
            self._questions.append(_Asked(device[0] if device else ""))
            return self._open
        widths = [int(number) for number in _LANES.findall(text)]
        if not widths and self._open and (bare := _BARE.search(text)):
            widths = [int(bare[1]), int(bare[2])]
        if len(widths) != 2 or _KERNEL.search(text) or not (self._open or "GT/s" in text):
            self._open = False
            return False
        self._judge(widths, [float(number) for number in _SPEED.findall(text)], line)
        return self._open

    def _judge(self, widths: list[int], speeds: list[float], line: Line) -> None:
        asked = self._questions[-1]
        asked.answers += 1
        device, node = _DEVICE.search(line.text), _NODE.match(line.text)
        names = device[0] if device else asked.device, node["node"] if node else "", line
        if len(asked.low) >= LINKS_LIMIT:
            return
        if 0 < min(widths) < max(widths):
            asked.low.append(_Link("lanes wide", min(widths), max(widths), *names))
        elif len(speeds) == 2 and 0 < min(speeds) < max(speeds) and _PORT.search(line.text):
            asked.low.append(_Link("GT/s", min(speeds), max(speeds), *names))

    def end(self, source: str) -> None:
        self._open = False

    def signals(self) -> Iterator[Signal]:
        for asked in self._questions:
            if not asked.low:
                continue
            first, alike = asked.low[0], len({(link.now, link.most) for link in asked.low}) == 1
            everywhere = len({link.node for link in asked.low}) == asked.answers > 1 and alike
            yield Signal(
                "pcie-degraded",
                Says.HINT if everywhere else Says.STRONG,
                f"the PCIe link of {first.device or 'a device'}{f' in {first.node}' if first.node else ''} is {first.now:g} of {first.most:g} {first.kind}"
                + (" (on all nodes that were asked: the slot may have no more)" if everywhere else ""),
                [link.line.evidence() for link in asked.low[:4]],
                {key: value for key, value in (("node", first.node), ("device", first.device)) if value},
                condition=True,
                order=first.line.order,
            )
