"""What NCCL's topology code does in one version: path types and their order, defaults, and where releases differ.

Numbers of path types changed between releases (PXB is 4 in 2.18 and 5 in 2.28), so a number is never kept: names are,
and `Rules.rank` orders them. Source: src/graph/{topo.h,topo.cc,paths.cc} of the releases v2.18.3-1 to v2.30.7-1.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from ncdiag.nccl.version import NEWEST_READ, Version, dotted

_TYPES = (
    ((2, 28, 0), "LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS NET DIS"),
    ((2, 27, 0), "LOC NVL NVB C2C PIX PXB PXN P2C PHB SYS NET DIS"),
    ((2, 26, 0), "LOC NVL NVB C2C PIX PXB PXN PHB SYS NET DIS"),
    ((0, 0, 0), "LOC NVL NVB PIX PXB PXN PHB SYS NET DIS"),
)

MEANINGS = {
    "LOC": "the same device",
    "NVL": "NVLink",
    "NVB": "NVLink through another GPU",
    "C2C": "GPU-CPU chip-to-chip link",
    "PIX": "at most one PCIe switch",
    "PXB": "several PCIe switches, not the CPU",
    "P2C": "chip-to-chip to the CPU, then PCIe",
    "PXN": "NVLink to the GPU beside the NIC",
    "PHB": "the PCIe host bridge of one CPU",
    "SYS": "the link between CPU sockets",
    "NET": "only the network",
    "DIS": "not connected",
}

#: What the digits 0..5 of the old numbering of NCCL_NET_GDR_LEVEL and NCCL_P2P_LEVEL stand for; larger ones mean SYS.
_OLD_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS", "SYS")


class Rules(NamedTuple):
    """One version's rules."""

    version: Version
    types: Tuple[str, ...]  # path types, nearest first
    type_first: bool  # a nearer path beats a faster one (2.30.7); before, the faster of equally long ones wins
    p2c: str  # which GPU-NIC paths become P2C: "" none, "host-bridge" (2.27.3), "any" (2.27.7), "closest" (2.29.2)
    pxn_c2c: bool  # PXN through a GPU that reaches the NIC over C2C
    pxn_needs_gdr: bool  # PXN only where the GPU in between can use GPUDirect (2.30.3)
    pxn_within: str  # the worst own path that still keeps a GPU from PXN
    divert_all: bool  # without GPUDirect every path goes through the CPU, not only those nearer than PHB (up to 2.20)
    gdr_c2c: str  # how C2C paths count for GPUDirect: "" no, "as-c2c" (with the setting from 2.26), "level" (2.29.2)
    gdr_level: str  # the default of NCCL_NET_GDR_LEVEL
    ampere_sends: bool  # sm 80 and newer use GPUDirect for sends without NVLink (2.19)
    start_by_local_gpus: bool  # a GPU's first NIC counts among the GPUs that share NICs (2.30.7), not by device number
    assumed: bool  # the version is not known; the newest rules are taken
    nets_by_mask: bool  # NICs dealt out round robin to the GPUs with the same set (2.18.3)

    @property
    def seen_by(self) -> str:
        """`NCCL 2.27.3 sees it`, and what is taken for granted about the version."""
        if self.assumed:
            return f"NCCL sees it (by the rules of {dotted(self.version)}; --nccl-version names another)"
        newer = f" (by the rules of {dotted(NEWEST_READ)}, the newest known)" if self.version > NEWEST_READ else ""
        return f"NCCL {dotted(self.version)} sees it{newer}"

    def rank(self, kind: str) -> int:
        """The place of a path type in this version's order; unknown names are the farthest."""
        return self.types.index(kind) if kind in self.types else len(self.types)

    def within(self, kind: str, limit: str) -> bool:
        """True if `kind` is no farther than `limit`."""
        return self.rank(kind) <= self.rank(limit)

    def farther(self, one: str, other: str) -> str:
        return one if self.rank(one) >= self.rank(other) else other


def rules_for(version: Optional[Version]) -> Rules:
    """The rules of one version; None: of the newest whose source was read."""
    v = version or NEWEST_READ
    return Rules(
        version=v,
        types=next(tuple(names.split()) for since, names in _TYPES if v >= since),
        type_first=v >= (2, 30, 7),
        p2c=_p2c(v),
        pxn_c2c=v >= (2, 28, 3),
        pxn_needs_gdr=v >= (2, 30, 3),
        pxn_within="PXN" if v >= (2, 27, 7) else "PXB",
        divert_all=v < (2, 21, 0),
        gdr_c2c="level" if v >= (2, 29, 2) else "as-c2c" if v >= (2, 26, 0) else "",
        gdr_level="P2C" if v >= (2, 29, 2) else "PXB",
        ampere_sends=v >= (2, 19, 0),
        start_by_local_gpus=v >= (2, 30, 7),
        assumed=version is None,
        nets_by_mask=v < (2, 18, 5),
    )


def _p2c(v: Version) -> str:
    if v >= (2, 29, 2):
        return "closest"
    if v >= (2, 27, 7):
        return "any"
    return "host-bridge" if v >= (2, 27, 0) else ""


class Level(NamedTuple):
    """A setting of NCCL_NET_GDR_LEVEL or NCCL_P2P_LEVEL as NCCL resolves it."""

    name: Optional[str]  # None: NCCL ignores the value without a word
    note: str  # why it is ignored, or what the digit stands for


def resolve_level(value: str, rules: Rules) -> Level:
    """NCCL compares names exactly (LOC … SYS, case-sensitive), else takes a leading digit in the old numbering.

    Source: src/graph/paths.cc, ncclGetLevel.
    """
    allowed = rules.types[: rules.rank("SYS") + 1]
    if value in allowed:
        return Level(value, "")
    if value[:1].isdecimal():
        digits = ""
        for char in value:
            if not char.isdecimal():
                break
            digits += char
        name = _OLD_LEVELS[min(int(digits[:4]), len(_OLD_LEVELS) - 1)]
        return Level(name, f"{value} is the old numbering for {name}")
    near = value.strip().upper()
    if near in allowed:
        return Level(None, f"NCCL compares names exactly and ignores {value!r}; write {near}")
    known = " ".join(allowed)
    return Level(None, f"NCCL {dotted(rules.version)} has no path type {value!r} and ignores it; it knows {known}")
