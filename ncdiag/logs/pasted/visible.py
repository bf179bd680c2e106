"""Printed environments: a variable of visible devices that names fewer GPUs than the node or the allocation has, where the engine counts just those.

Sources: Slurm's SLURM_GPUS_ON_NODE, SLURM_JOB_GPUS and SLURM_STEP_GPUS, `nvidia-smi -L`; messages of vLLM, SGLang and Lightning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.model import Evidence
from ncdiag.nodeset import counted

_LIST = re.compile(
    r"\b(?P<name>(?:CUDA|HIP|ROCR|NVIDIA|ASCEND_RT)_VISIBLE_DEVICES)(?:=|: ?| (?:is |set to |= ))[\"'\[]?(?P<list>\d+(?:, ?\d+)*|(?:GPU|MIG)-[\w-]+(?:, ?(?:GPU|MIG)-[\w-]+)*)"
)
_NONE = re.compile(
    r"\b(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES=(?:''|\"\")?(?=[\s,;]|$)|\bNVIDIA_VISIBLE_DEVICES=[\"']?(?:void|none)\b"
)
_GIVEN = re.compile(
    r"\bSLURM_GPUS_ON_NODE=(?P<count>\d+)|\bSLURM_(?:JOB|STEP)_GPUS=(?P<list>\d+(?:[,-]\d+)*)|^GPU (?P<index>\d+): \S.*\(UUID: "
)
_COUNTED = re.compile(
    r"\((?P<want>\d+)\)[^\n]{0,90}?(?:available|visible) (?:GPUs|devices|accelerators)[^\n]{0,12}?\((?P<have>\d+)\)"
    r"|(?P<want2>\d+) (?:GPUs|devices),? but [^\n]{0,40}?(?:found|only|has|have|sees?|visible|available)\D{0,20}(?P<have2>\d+)"
)
_UUID = re.compile(r"\bGPU-[0-9a-f]{8}-[0-9a-f-]{27}\b")
_COUNT_LINES = re.compile(r"nvidia-smi (?:-L|--list-gpus) *\| *wc -l\s*$")


class Visible:
    """The smallest list of visible devices, the GPUs of the node, and what an engine counted."""

    triggers = ("_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE=", "SLURM_JOB_GPUS=", "SLURM_STEP_GPUS=", "(UUID: GPU-", "wc -l", "invalid device ordinal", "available GPUs", "visible GPUs", "visible devices", "available devices", " GPUs but ", " GPUs, but ", " devices but ")  # fmt: skip

    def __init__(self) -> None:
        self._lists: dict[int, tuple[str, Line]] = {}
        """Number of devices named -> the variable, and where."""
        self._given: tuple[int, Line] | None = None
        self._listed: tuple[int, Line] | None = None
        """How many `nvidia-smi -L` listed last."""
        self._counted: tuple[int, int, Line] | None = None
        self._ordinal: Line | None = None
        """Where a process asks for a GPU that it does not see."""
        self._asked = False
        self._named: dict[tuple[str, str], tuple[set[str], Line]] = {}
        """Source and who speaks -> the GPUs that a variable names by their UUIDs; `_there`: those that `nvidia-smi -L` lists."""
        self._there: dict[tuple[str, str], tuple[set[str], Line]] = {}
        self.none: Line | None = None
        """A printed variable that leaves a process no GPU at all."""

    def take(self, line: Line) -> bool:
        text = line.text
        if self._asked and text.strip().isdecimal() and len(text.strip()) < 4:
            self._give(int(text), line)
        self._asked = _COUNT_LINES.search(text) is not None
        if self.none is None and _NONE.search(text):
            self.none = line
        for named in _LIST.finditer(text):
            self._lists.setdefault(named["list"].count(",") + 1, (named[0], line))
        self._take_names(line)
        for given in _GIVEN.finditer(text):
            if given["index"]:
                self._listed = int(given["index"][:6]) + 1, line
            self._give(_many(given), line)
        counted = _COUNTED.search(text)
        if counted and self._counted is None:
            self._counted = int(counted["want"] or counted["want2"]), int(counted["have"] or counted["have2"]), line
        if "invalid device ordinal" in text:
            self._ordinal = self._ordinal or line
        return self._asked

    def _take_names(self, line: Line) -> None:
        where = line.source, line.before
        ids = set(_UUID.findall(line.text))
        if ids and _LIST.search(line.text) and len(self._named) < 1000:
            self._named.setdefault(where, (ids, line))
        elif ids and "(UUID: " in line.text and len(self._there) < 1000:
            self._there.setdefault(where, (set(), line))[0].update(ids)

    def _foreign(self) -> Iterator[Signal]:
        """A variable that names GPUs by UUIDs of which the same place has none."""
        for where, (ids, line) in self._named.items():
            there, listed = self._there.get(where, (ids, line))
            if ids.isdisjoint(there):
                yield Signal(
                    "visible-devices-conflict",
                    Says.STRONG,
                    "a variable of visible devices names GPUs by UUIDs that this node does not have: CUDA sees none of its GPUs",
                    [line.evidence(), listed.evidence()],
                    order=line.order,
                    remedy="set the variable on each node (by index, or with that node's own UUIDs); do not export it from the node where the job is submitted",
                )
                return

    def _give(self, count: int, line: Line) -> None:
        if self._given is None or count > self._given[0]:
            self._given = count, line

    def end(self, source: str) -> None:
        self._asked = False

    def beyond(self) -> tuple[str, int, list[Evidence]] | None:
        """A variable that names only GPUs that `nvidia-smi -L` does not list: the setting, how many it lists, the lines."""
        if self._listed is None:
            return None
        count, listed = self._listed
        for setting, line in self._lists.values():
            numbers = re.findall(r"\d+", setting.rpartition("S")[2])
            if "NVIDIA" in setting or "GPU-" in setting or line.source != listed.source:
                continue
            if numbers and min(int(number[:6]) for number in numbers) >= count:
                return setting, count, [line.evidence(), listed.evidence()]
        return None

    def signals(self) -> Iterator[Signal]:
        yield from self._foreign()
        if self._given is None:
            return
        count, given = self._given
        if self._counted is not None:
            want, have, at = self._counted
        elif self._ordinal is not None and self._lists:
            want, have, at = count, max(self._lists), self._ordinal
        else:
            return
        if have in self._lists and have < want <= count:
            setting, line = self._lists[have]
            yield Signal(
                "visible-devices-conflict",
                Says.STRONG,
                f"{setting} leaves {have} of {counted(count, 'GPU')} there, and the job counts on more",
                [line.evidence(), given.evidence(), at.evidence()],
                order=at.order,
                remedy="unset the variable of visible devices (look for it in login profiles, modules and images), or name all GPUs that the job may use",
            )


def _many(given: re.Match[str]) -> int:
    """How many GPUs a line gives."""
    if given["count"]:
        return int(given["count"][:6])
    if given["index"]:
        return int(given["index"][:6]) + 1
    total = 0
    for part in given["list"].split(","):
        first, _, last = part.partition("-")
        total += int(last[:6] or first[:6]) - int(first[:6]) + 1
    return total
