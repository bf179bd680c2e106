"""`ibv_devinfo`, `ibstat`, `ibstatus`: ports of one device name with different MTU, fabrics that are mixed; and whether all ports are up.

Output of several nodes may follow each other in one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line

_DEVICE = re.compile(r"(?:hca_id:\s*|^CA '|Infiniband device ')(?P<device>[\w.]+)")
_MTU = re.compile(r"active_mtu:\s*(?P<mtu>\d+)")
_LAYER = re.compile(r"[Ll]ink[_ ]layer:\s*(?P<layer>InfiniBand|Ethernet)")
_STATE = re.compile(
    r"^\s*(?:state|State):\s*(?:\d: )?(?P<state>PORT_ACTIVE|ACTIVE|Active|PORT_DOWN|DOWN|Down|PORT_INIT|INIT|Initializing|Armed|PORT_ARMED)\b"
)

_OFF = re.compile(r"(?i)phys(?:ical)?[ _]state:\s*(?:\d: )?Disabled")


class Verbs:
    """Devices and ports as the verbs tools show them."""

    triggers = ("hca_id:", "CA '", "Infiniband device '", "active_mtu:", "link_layer:")

    def __init__(self) -> None:
        self._device = ""
        self._mtus: dict[str, dict[int, Line]] = {}
        self._layers: dict[str, Line] = {}
        self._states: dict[str, Line] = {}
        self._down: Line | None = None
        self.off: set[tuple[str, int]] = set()
        """`(source, line)` of the states of ports that are down because somebody switched them off."""

    def take(self, line: Line) -> bool:
        text = line.text
        device, mtu, layer, state = _DEVICE.search(text), _MTU.search(text), _LAYER.search(text), _STATE.search(text)
        if device:
            self._device, self._down = device["device"], None
        if mtu and len(self._mtus) < 5000:
            self._mtus.setdefault(self._device, {}).setdefault(int(mtu["mtu"]), line)
        if layer:
            self._layers.setdefault(layer["layer"], line)
        if self._down is not None and _OFF.search(text):
            self.off.add((self._down.source, self._down.number))
        if state:
            self._down = line if state["state"].upper().endswith("DOWN") else None
            self._states.setdefault(state["state"].replace("PORT_", "").upper(), line)
        return bool(text.strip())

    def end(self, source: str) -> None:
        self._device = ""

    def signals(self) -> Iterator[Signal]:
        for device, mtus in self._mtus.items():
            if len(mtus) > 1:
                yield Signal(
                    "mtu-mismatch",
                    Says.STRONG,
                    f"{device or 'a device'} has different active MTUs: " + ", ".join(str(mtu) for mtu in sorted(mtus)),
                    [line.evidence() for line in mtus.values()],
                    {"device": device},
                    condition=True,
                    order=min(line.order for line in mtus.values()),
                )
                return
        if len(self._layers) > 1:
            yield Signal(
                "mixed-hca-fabrics",
                Says.HINT,
                "InfiniBand and Ethernet devices are in one node",
                [line.evidence() for line in self._layers.values()],
                condition=True,
                order=min(line.order for line in self._layers.values()),
            )

    @property
    def up(self) -> Line | None:
        """The line of an active port, when no port in the output is anything else."""
        return self._states["ACTIVE"] if set(self._states) == {"ACTIVE"} else None
