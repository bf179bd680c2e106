"""`ibv_devinfo`, `ibstat`, `ibstatus`: ports of one device name with different MTU or one model with different rates, fabrics that are mixed; and whether all ports are up.

Output of several nodes may follow each other in one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.nccl import hca

_DEVICE = re.compile(r"(?:hca_id:\s*|^CA '|Infiniband device ')(?P<device>[\w.]+)")
_MTU = re.compile(r"active_mtu:\s*(?P<mtu>\d+)")
_LAYER = re.compile(r"[Ll]ink[_ ]layer:\s*(?P<layer>InfiniBand|Ethernet)")
_STATE = re.compile(
    r"^\s*(?:state|State):\s*(?:\d: )?(?P<state>PORT_ACTIVE|ACTIVE|Active|PORT_DOWN|DOWN|Down|PORT_INIT|INIT|Initializing|Armed|PORT_ARMED)\b"
)

_KIND = re.compile(r"^\s*CA type:\s*(?P<kind>\S+)")
_RATE = re.compile(r"^\s*Rate:\s*(?P<rate>\d+)\b")

_FILTER = re.compile(r"\bNCCL_IB_HCA=[\"']?(?P<value>[\^=]*[\w.:,-]+)")
_LISTED = re.compile(
    r"^(?:\S*/)?(?P<device>[a-z]\w{2,30})(?:/ports/\d+/state)?:?\s+\d: (?P<state>ACTIVE|DOWN|INIT|ARMED)\b(?:.*?\b(?P<rate>\d+) Gb/sec \()?"
)
"""A device and the `state` of its port in sysfs, as loops over /sys/class/infiniband print them."""
_LISTS = "these lists"  # in which no model is named
_OFF = re.compile(r"(?i)phys(?:ical)?[ _]state:\s*(?:\d: )?Disabled")


class Verbs:
    """Devices and ports as the verbs tools show them."""

    triggers = ("hca_id:", "CA '", "Infiniband device '", "active_mtu:", "link_layer:", "NCCL_IB_HCA=", ": ACTIVE")

    def __init__(self) -> None:
        self._device = ""
        self._mtus: dict[str, dict[int, Line]] = {}
        self._layers: dict[str, dict[str, Line]] = {}
        """Link layer -> device -> line."""
        self._filter: hca.Filter | None = None
        self._filtered: Line | None = None
        self._ready: dict[str, Line] = {}
        """Devices with an active port."""
        self._states: dict[str, Line] = {}
        self._kind = ""
        self._active = False
        self._rates: dict[tuple[str, str], list[tuple[int, str, Line]]] = {}
        self.inactive: dict[tuple[str, int], str] = {}
        """`(source, line)` of the states of ports that are not active, and of the words that they are switched off -> device."""
        self._down: Line | None = None
        self.off: set[tuple[str, int]] = set()
        """`(source, line)` of the states of ports that are down because somebody switched them off."""

    def take(self, line: Line) -> bool:
        text = line.text
        if "NCCL_IB_HCA=" in text and (chosen := _FILTER.search(text)):
            self._filter, self._filtered = hca.parse(chosen["value"]), line
            return False
        listed = _LISTED.match(text)
        if listed:
            self._note(listed["device"], listed["state"], line)
            if listed["rate"] and listed["state"] == "ACTIVE":
                self._keep_rate(_LISTS, int(listed["rate"]), listed["device"], line)
            return True
        device, mtu, layer, state = _DEVICE.search(text), _MTU.search(text), _LAYER.search(text), _STATE.search(text)
        if device:
            self._device, self._down, self._kind, self._active = device["device"], None, "", False
        self._take_rate(line)
        if mtu and len(self._mtus) < 5000:
            self._mtus.setdefault(self._device, {}).setdefault(int(mtu["mtu"]), line)
        if layer and len(devices := self._layers.setdefault(layer["layer"], {})) < 1000:
            devices.setdefault(self._device, line)
        if self._down is not None and _OFF.search(text):
            self.off.add((self._down.source, self._down.number))
            self.inactive[(line.source, line.number)] = self._device
        if state:
            if not state["state"].upper().endswith("ACTIVE"):
                self.inactive[(line.source, line.number)] = self._device
            self._down = line if state["state"].upper().endswith("DOWN") else None
            self._active = state["state"].upper().endswith("ACTIVE")
            self._note(self._device, state["state"].replace("PORT_", "").upper(), line)
        return bool(text.strip())

    def _note(self, device: str, state: str, line: Line) -> None:
        self._states.setdefault(state, line)
        if state == "ACTIVE" and device and len(self._ready) < 1000:
            self._ready.setdefault(device, line)

    def _none_taken(self) -> Iterator[Signal]:
        """The list of devices that NCCL may take names none of those that are ready."""
        if self._filter is None or self._filtered is None or not self._ready or any(map(self.used, self._ready)):
            return
        lines = list(self._ready.values())
        yield Signal(
            "rdma-unavailable",
            Says.STRONG,
            f"NCCL_IB_HCA leaves out all devices that are ready ({', '.join(list(self._ready)[:4])}): NCCL takes TCP sockets",
            [self._filtered.evidence(), *[line.evidence() for line in lines[:3]]],
            condition=True,
            order=lines[0].order,
            remedy="unset NCCL_IB_HCA, or name devices as `ls /sys/class/infiniband` shows them on every node",
        )

    def _take_rate(self, line: Line) -> None:
        """`ibstat`: the rate of an active port, by the card's model."""
        kind, rate = _KIND.match(line.text), _RATE.match(line.text)
        if kind:
            self._kind = kind["kind"]
        elif rate and self._kind and self._active:
            self._keep_rate(self._kind, int(rate["rate"]), self._device, line)

    def _keep_rate(self, kind: str, rate: int, device: str, line: Line) -> None:
        if len(self._rates) < 1000 and len(ports := self._rates.setdefault((line.source, kind), [])) < 1000:
            ports.append((rate, device, line))

    def _slow(self) -> Iterator[Signal]:
        """A port whose rate is below that of most others of the same model."""
        for (_, kind), ports in self._rates.items():
            most = max(rate for rate, _, _ in ports)
            low = [port for port in ports if port[0] < most]
            if low and len(ports) > 2 and len(low) * 2 < len(ports):
                rate, device, line = low[0]
                names = ", ".join(dict.fromkeys(device for _, device, _ in low))
                yield Signal(
                    "ib-link-or-hca-fault",
                    Says.STRONG,
                    f"{names} came up at {rate} of the {most} Gb/s that the other ports of {kind} have",
                    [line.evidence() for _, _, line in low[:4]],
                    {"device": device},
                    condition=True,
                    order=line.order,
                )

    def end(self, source: str) -> None:
        self._device = ""

    def signals(self) -> Iterator[Signal]:
        yield from self._slow()
        yield from self._none_taken()
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
        taken = [
            next(line for device, line in devices.items() if self.used(device))
            for devices in self._layers.values()
            if any(map(self.used, devices))
        ]
        if len(taken) > 1:
            yield Signal(
                "mixed-hca-fabrics",
                Says.HINT,
                "InfiniBand and Ethernet devices are in one node",
                [line.evidence() for line in taken],
                condition=True,
                order=min(line.order for line in taken),
            )

    def used(self, device: str) -> bool:
        """Whether NCCL may take the device, by the NCCL_IB_HCA that was given with it, if any."""
        return self._filter is None or any(self._filter.takes(device, port) for port in (1, 2))

    @property
    def up(self) -> Line | None:
        """The line of an active port, when no port of a device that is used is anything else."""
        other = any(self.used(device) for device in self.inactive.values())
        return None if other else self._states.get("ACTIVE")
