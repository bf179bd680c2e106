"""The variables that change NCCL's view of the topology, as NCCL reads them."""

from __future__ import annotations

import re
from typing import List, Mapping, NamedTuple, Optional

from ncdiag.nccl.rules import Rules, resolve_level

_NUMBER = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|\d+)")


def integer(value: str) -> Optional[int]:
    """As NCCL reads a number: strtoll with base 0, trailing text ignored (`0x10`, octal `010`, `22abc`); None if empty.

    Text without a number is 0, as there: `NCCL_IB_DISABLE=true` does not disable anything.
    Source: src/misc/param.cc (ncclLoadParam).
    """
    if not value:
        return None
    match = _NUMBER.match(value)
    if match is None:
        return 0
    digits = match.group(2)[:19]
    if digits[:2].lower() == "0x":
        number = int(digits, 16)
    elif digits.startswith("0"):
        octal = re.match(r"[0-7]+", digits)
        number = int(octal.group(), 8) if octal else 0
    else:
        number = int(digits)
    return -number if match.group(1) == "-" else number


class Settings(NamedTuple):
    """None: not set, NCCL's default holds."""

    gdr_level: Optional[str] = None  # a path type
    p2p_level: Optional[str] = None  # a path type; LOC for NCCL_P2P_DISABLE=1
    gdr_read: Optional[int] = None
    gdr_c2c: Optional[int] = None
    pxn_c2c: Optional[int] = None
    pxn_disable: bool = False
    nvb_disable: bool = False
    policy: str = "AUTO"  # NCCL_NETDEVS_POLICY: AUTO, ALL or MAX:n

    def pxn_c2c_on(self, rules: Rules) -> bool:
        if "P2C" not in rules.types:
            return False
        return rules.pxn_c2c if self.pxn_c2c is None else self.pxn_c2c != 0

    def gdr_c2c_on(self, rules: Rules) -> bool:
        """NCCL_NET_GDR_C2C, with its default of the version."""
        if self.gdr_c2c is None:
            return rules.version >= (2, 27, 0)
        return rules.version >= (2, 26, 0) and self.gdr_c2c != 0


class SettingsRead(NamedTuple):
    settings: Settings
    notes: List[str]  # values that NCCL ignores, and old numbers


def settings_from(environ: Mapping[str, str], rules: Rules) -> SettingsRead:
    """What an environment means for the topology."""
    notes: List[str] = []

    def level(name: str) -> Optional[str]:
        if name not in environ:
            return None
        resolved = resolve_level(environ[name], rules)
        if resolved.note:
            notes.append(f"{name}={environ[name]}: {resolved.note}")
        return resolved.name

    def number(name: str) -> Optional[int]:
        return integer(environ.get(name, ""))

    p2p = "LOC" if number("NCCL_P2P_DISABLE") == 1 else level("NCCL_P2P_LEVEL")
    settings = Settings(
        gdr_level=level("NCCL_NET_GDR_LEVEL"),
        p2p_level=p2p,
        gdr_read=number("NCCL_NET_GDR_READ"),
        gdr_c2c=number("NCCL_NET_GDR_C2C"),
        pxn_c2c=number("NCCL_PXN_C2C"),
        pxn_disable=number("NCCL_PXN_DISABLE") == 1,
        nvb_disable=bool(number("NCCL_NVB_DISABLE")),
        policy=environ.get("NCCL_NETDEVS_POLICY", "AUTO").upper(),
    )
    return SettingsRead(settings, notes)
