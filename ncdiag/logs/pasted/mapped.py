"""Which libnccl processes have mapped: `/proc/PID/maps`, lsof and pmap of several places, beside `pip list`.

What is installed may be the same everywhere and not what is loaded: LD_PRELOAD and LD_LIBRARY_PATH come before torch's own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.logs.pasted.prompts import asked, fronted

_QUESTION = re.compile(r"/maps\b|\blsof\b|\bpmap\b")
_RAW = re.compile(r"(?:/proc/\d+/maps:)?[0-9a-f]{6,16}-[0-9a-f]{6,16} [r-][w-][x-][ps] ")
_LIBRARY = re.compile(r"(?P<path>/[^\s:'\",]*/libnccl\.so(?P<version>(?:\.\d{1,4})*))(?![\w.])")
_IN_PATH = re.compile(r"/nccl[-_/]v?(?P<version>\d+\.\d+\.\d+)\b")
_WHEEL = re.compile(r"\bnvidia-nccl-cu\d+(?: +|==)(?P<version>\d+\.\d+\.\d+)")
_SHOWN = re.compile(r"Version: (?P<version>\d+\.\d+\.\d+)\s*$")
"""Below `Name: nvidia-nccl-cu12`, as `pip show` prints it."""
_SHOW = re.compile(r"\bpip3? show nvidia-nccl-cu\d+(?! \S+-)")
_PRELOAD = re.compile(r"\bLD_PRELOAD=\S*libnccl\S*")
LIMIT = 1000  # lines


@dataclass
class _Map:
    place: str
    named: bool
    path: str
    version: str
    """\"\" where only what is installed there says it."""
    line: Line


class Mapped:
    """Libraries by place."""

    triggers = ("libnccl.so", "nvidia-nccl-cu", "/maps")

    def __init__(self) -> None:
        self._maps: list[_Map] = []
        self._wheels: dict[str, str] = {}
        """Place -> version that pip lists there."""
        self._preload: dict[str, Line] = {}
        self._at = ""
        self._unnamed = 0
        """Questions of which is not said where."""
        self._shown = self._asked = False
        """Whether what processes have mapped was asked for; before it, whether pip tells of NCCL."""

    def take(self, line: Line) -> bool:
        host, text = fronted(line)
        question = asked(line.text)
        if question is not None or line.text.startswith("$ "):
            self._at = question.host if question is not None else self._at  # a heading's
            self._asked = _QUESTION.search(text) is not None
            self._unnamed += not self._at
            self._shown = _SHOW.search(text) is not None
            return True
        wheel = _WHEEL.search(text) or (_SHOWN.search(line.text) if self._shown else None)
        name = self._at if self._shown else host or self._at
        place = name or f"{line.source} {self._unnamed}"
        library, preload = _LIBRARY.search(text), _PRELOAD.search(text)
        self._shown = "Name: nvidia-nccl-cu" in line.text
        if preload:
            self._preload.setdefault(place, line)
        elif wheel and len(self._wheels) < LIMIT:
            self._wheels.setdefault(place, wheel["version"])
        elif library and (self._asked or _RAW.match(text)) and len(self._maps) < LIMIT:
            self._maps.append(_Map(place, bool(name), library["path"], _version(library), line))
        if library or wheel or preload or self._shown or not text:
            return True
        self._at, self._asked = "", False
        return False

    def end(self, source: str) -> None:
        self._at, self._asked = "", False

    def _of(self, one: _Map) -> str:
        """The version: what the name says, for torch's own what pip says there, or everywhere."""
        if one.version or "/nvidia/nccl/lib/" not in one.path:
            return one.version
        said = set(self._wheels.values())
        return self._wheels.get(one.place, "") or (said.pop() if len(said) == 1 else "")

    def signals(self) -> Iterator[Signal]:
        kinds = {(one.place, one.path): one for one in self._maps}
        pairs = [
            pair for pair in itertools.combinations(list(kinds.values())[:64], 2) if pair[0].place != pair[1].place
        ]
        for one, other in pairs:
            versions = self._of(one), self._of(other)
            if not all(versions) or versions[0] == versions[1]:
                continue
            odd = one if one.place in self._preload or "/nvidia/nccl/lib/" not in one.path else other
            lines = [line for place, line in self._preload.items() if place in (one.place, other.place)]
            yield Signal(
                "nccl-version-mismatch",
                Says.STRONG if one.named and other.named else Says.HINT,
                " and ".join(
                    f"a process{f' in {two.place}' if two.named else ''} has NCCL {self._of(two)} loaded"
                    for two in (one, other)
                )
                + (" (LD_PRELOAD)" if odd.place in self._preload else ""),
                [one.line.evidence(), other.line.evidence(), *(line.evidence() for line in lines[:2])],
                {"node": odd.place} if odd.named else {},
                order=min(one.line.order, other.line.order),
                remedy="the same NCCL on all nodes, the one that torch pins: take other libnccl.so.2 off LD_PRELOAD, LD_LIBRARY_PATH and VLLM_NCCL_SO_PATH of that process",
            )
            return


def _version(library: re.Match[str]) -> str:
    said = library["version"].lstrip(".")
    in_path = _IN_PATH.search(library["path"])
    return said if said.count(".") >= 2 else in_path["version"] if in_path else ""
