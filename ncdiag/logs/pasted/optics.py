"""`mlxlink -m -c` and `ethtool -m`: a port that is up, whose signal is bad: error rates after correction, light and heat beside what the module allows.

Sources: mlxlink of MFT 4.18 to 4.30, ethtool 5 and 6; the limit of error rates is that of the InfiniBand specification (1E-12).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.nodeset import counted

BER_LIMIT = 1e-12  # errors per bit after the correction, with which a link is fine
DOWNS = 5  # times that a link went down, beyond what starts and maintenance bring
_DEVICE = re.compile(r"\bmlxlink\b.*?\s-d\s*(?P<device>\S+)|\bethtool (?:-m|--module-info) (?P<device2>\S+)")
_ADVICE = re.compile(r"^\s*Recommendation\s*:\s*(?P<text>.*\S)")
_BAD_ADVICE = re.compile(
    r"(?i)signal integrity|bad signal|signal (?:is )?not detected|\bBER\b|\bSNR\b|flap|faulty|over ?temperature|temperature|bad cable"
)
_BER = re.compile(r"^\s*(?P<name>(?:Effective Physical|Symbol|Effective) BER)\s*:\s*(?P<value>\d+(?:\.\d+)?E-\d+)\s*$")
_DOWN = re.compile(r"^\s*Link Down Counter\s*:\s*(?P<count>\d{1,9})\b")
_RANGE = re.compile(
    r"^\s*(?P<name>Temperature \[C\]|(?:Rx|Tx) Power Current \[dBm\])\s*:\s*(?P<values>-?\d[\d.,-]*)\s*\[(?P<low>-?\d+(?:\.\d+)?)\.\.(?P<high>-?\d+(?:\.\d+)?)\]"
)
_ALARM = re.compile(
    r"^\s*(?P<name>(?:Laser (?:rx|tx|output|bias)[\w ]*|Module temperature)(?: \(Chan\w* \d\))? (?:high|low) alarm)[\w ()]*:\s*On\b"
)


@dataclass
class _Port:
    """What is wrong at one port."""

    named: list[tuple[str, Line]] = field(default_factory=list)
    """What says so by itself."""
    fits: list[tuple[str, Line]] = field(default_factory=list)
    """What says so of a port that is in use."""


class Optics:
    """Signals of ports, as the tools print them one after the other."""

    triggers = ("mlxlink", "ethtool -m", "ethtool --module", "Recommendation  ", "Recommendation :", " BER  ", " BER :", "Link Down Counter", "Temperature [C]", "Power Current [dBm]", " alarm ")  # fmt: skip

    def __init__(self) -> None:
        self._ports: dict[tuple[str, str], _Port] = {}
        self._device = ""

    def take(self, line: Line) -> bool:
        text = line.text
        device = _DEVICE.search(text)
        if device:
            self._device = device["device"] or device["device2"]
            return False
        advice, rate, down, values, alarm = (pattern.match(text) for pattern in (_ADVICE, _BER, _DOWN, _RANGE, _ALARM))
        if advice and _BAD_ADVICE.search(advice["text"]):
            self._keep(line).named.append((f"mlxlink says: {advice['text'][:80]}", line))
        elif rate and float(rate["value"]) > BER_LIMIT:
            self._keep(line).named.append((f"{rate['name']} {rate['value']}", line))
        elif down and int(down["count"]) >= DOWNS:
            self._keep(line).fits.append((f"the link went down {counted(int(down['count']), 'time')}", line))
        elif values and (bad := _outside(values)):
            self._keep(line).fits.append((bad, line))
        elif alarm:
            self._keep(line).fits.append((alarm["name"], line))
        return False

    def _keep(self, line: Line) -> _Port:
        return self._ports.setdefault((line.source, self._device), _Port())

    def end(self, source: str) -> None:
        self._device = ""

    def signals(self) -> Iterator[Signal]:
        for (_, device), port in list(self._ports.items())[:16]:
            found = [*port.named, *port.fits]
            yield Signal(
                "ib-link-or-hca-fault",
                Says.STRONG if port.named else Says.HINT,
                f"the signal at {device or 'a port'} is bad: " + "; ".join(what for what, _ in found[:4]),
                [line.evidence() for _, line in found[:6]],
                {"device": device} if device else {},
                condition=True,
                order=found[0][1].order,
                remedy="clean or change cable and transceiver of this port, look at its other end; leave the port out until its error rates are clean",
            )


def _outside(values: re.Match[str]) -> str:
    """What lies outside the range that the module gives, "" where nothing does."""
    low, high = float(values["low"]), float(values["high"])
    lanes = [float(lane) for lane in values["values"].split(",") if re.fullmatch(r"-?\d+(?:\.\d+)?", lane)]
    bad = [lane for lane in lanes if not low <= lane <= high]
    return f"{values['name']} {bad[0]:g} ({low:g} to {high:g} allowed)" if bad and low < high else ""
