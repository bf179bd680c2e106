"""The file of NCCL_TOPO_FILE beside the GPUs of the machine: bus ids of another machine's file match nothing, and NCCL finds no NIC near a GPU.

Sources: `<pci busid= class=>` of NCCL's topology files (class 0x0302 and 0x0300 are GPUs); bus ids as nvidia-smi prints them, with eight digits of domain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.logs.pasted.prompts import asked

_SET = re.compile(r"NCCL_TOPO_FILE(?: set by environment to |=[\"']?)(?P<path>/[^\s\"']+)")
_PCI = re.compile(r"<pci\b[^>]*\bbusid=\"(?P<bus>[0-9a-fA-F:.]{12})\"[^>]*\bclass=\"0x030[02]")
_BUS = re.compile(r"\b[0-9a-fA-F]{4}(?P<bus>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\b")
_FILE = re.compile(r"/[\w./+-]+\.xml\b")
ALL = 4  # GPUs that are no single part of a machine, as a container may have
LIMIT = 1000  # bus ids


class TopologyFile:
    """GPUs that files name, and those of one machine."""

    triggers = ("NCCL_TOPO_FILE", "<pci busid=", "--query-gpu=", "pci.bus_id", ":00.0 Off |", ":00.0  On |", ":00.0 On |")  # fmt: skip

    def __init__(self) -> None:
        self._set: tuple[str, Line] | None = None
        self._named: dict[str, dict[str, Line]] = {}
        """File, "" where no command names it -> bus ids of its GPUs."""
        self._there: dict[str, dict[str, Line]] = {}
        """Host, "" where none is named -> bus ids of GPUs."""
        self._file = self._host = ""

    def take(self, line: Line) -> bool:
        text = line.text
        chosen = _SET.search(text)
        if chosen and self._set is None:
            self._set = chosen["path"], line
        question = asked(text)
        if question is not None or text.startswith("$ "):
            self._host, file = question.host if question else "", _FILE.search(text)
            self._file = file[0] if file else ""
            return True
        if "NCCL INFO" in text or "NCCL WARN" in text:
            return False
        pci = _PCI.search(text)
        if pci and len(named := self._named.setdefault(self._file, {})) < LIMIT:
            named.setdefault(pci["bus"].lower(), line)
        elif "<" not in text and (bus := _BUS.search(text)):
            there = self._there.setdefault(self._host, {})
            if len(there) < LIMIT:
                there.setdefault(bus["bus"].lower(), line)
        elif "<" not in text and not text.startswith(("|", "+")):
            self._file = self._host = ""
            return False
        return True

    def end(self, source: str) -> None:
        self._file = self._host = ""

    def signals(self) -> Iterator[Signal]:
        if self._set is None or len(self._there) != 1:
            return
        path, at = self._set
        named, there = self._named.get(path) or self._named.get("") or {}, next(iter(self._there.values()))
        if not named or not there or named.keys() & there.keys():
            return
        yield Signal(
            "topology-file-error",
            Says.STRONG if len(there) >= ALL else Says.HINT,
            f"NCCL_TOPO_FILE={path} names GPUs ({', '.join(list(named)[:3])}) that are not here ({', '.join(list(there)[:3])}): it is of another kind of machine, and says nothing of which NIC is near which GPU",
            [at.evidence(), next(iter(named.values())).evidence(), next(iter(there.values())).evidence()],
            {"path": path},
            condition=True,
            order=at.order,
            remedy="the topology file of this machine or VM size, or none: unset NCCL_TOPO_FILE (environment, image, /etc/nccl.conf)",
        )
