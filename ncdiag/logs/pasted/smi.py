"""The table of `nvidia-smi`: GPUs in error, memory held by other processes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.kinds import HOLDS
from ncdiag.logs.model import Line

_MEMORY = re.compile(r"\|\s*(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB\s*\|\s*(?P<util>\d+|N/A)%?")
_GPU = re.compile(
    r"^\|\s*(?P<index>\d+)\s+\S.*\|\s*(?P<bus>[0-9A-Fa-f]{8}:[0-9A-Fa-f:.]+)\s+\S+\s*\|\s*(?P<ecc>\S+)\s*\|?"
)
_PROCESS = re.compile(
    r"^\|\s*(?P<gpu>\d+)\s+(?:N/A\s+N/A\s+)?(?P<pid>\d+)\s+(?P<type>[CGM+]+)\s+(?P<name>\S.*?)\s+(?P<size>\d+)MiB\s*\|"
)

_APPS = re.compile(r"--query-compute-apps=[\"']?([a-z_,]+)")
_SIZES = ("used_gpu_memory", "used_memory")
_MIB = re.compile(r"(\d+)(?: MiB)?$")
_CALM = re.compile(r"(?:HW Slowdown|Remapping Failure Occurred)\s*:\s*(?:Not Active|No)\s*$")


class Apps:
    """`nvidia-smi --query-compute-apps=… --format=csv`: who holds GPU memory."""

    triggers = ("--query-compute-apps", "process_name", "used_gpu_memory", "used_memory")

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._held: list[tuple[int, str, str, float, Line]] = []

    def take(self, line: Line) -> bool:
        cells = [cell.strip() for cell in line.text.split(",")]
        names = [cell.partition(" [")[0] for cell in cells]
        if "--query-compute-apps" in line.text:
            self._columns = _APPS.findall(line.text)[:1]
            self._columns = self._columns[0].split(",") if self._columns else []
            return bool(self._columns)
        if "pid" in names and any(name in names for name in _SIZES):
            self._columns = names
            return True
        row = dict(zip(self._columns, cells, strict=False)) if len(cells) == len(self._columns) else {}
        size = _MIB.match(next((row[name] for name in _SIZES if name in row), ""))
        if size is None or not row.get("pid", "").isdecimal():
            self._columns = []
            return False
        if len(self._held) < 1000:
            gpu = row.get("gpu_bus_id") or row.get("gpu_uuid") or ""
            self._held.append(
                (
                    int(row["pid"][:9]),
                    row.get("process_name") or row.get("name") or "?",
                    gpu,
                    int(size[1][:9]) / 1024,
                    line,
                )
            )
        return True

    def end(self, source: str) -> None:
        self._columns = []

    def signals(self) -> Iterator[Signal]:
        for pid, name, gpu, gib, line in self._held[:8]:
            if gib >= 1:
                where = {"pid": pid, **({"device": gpu} if gpu else {})}
                summary = f"process {pid} ({name}) holds {gib:.1f} GiB of GPU memory"
                yield Signal(
                    "gpu-memory-occupied",
                    Says.HINT,
                    summary,
                    [line.evidence()],
                    where,
                    condition=True,
                    order=line.order,
                    kind=HOLDS,
                )


class Smi:
    """`nvidia-smi` without options."""

    triggers = ("NVIDIA-SMI ", "MiB |", "ERR!", "|  Persistence-M", "HW Slowdown", "Remapping Failure Occurred")

    def __init__(self) -> None:
        self._gpus: list[tuple[str, str, str, Line]] = []
        self._memory: list[tuple[int, int, int | None, Line]] = []
        self._processes: list[tuple[str, str, int, Line]] = []
        self.holders: set[int] = set()
        """Processes that hold GPU memory."""
        self._errors: list[Line] = []
        self.calm: Line | None = None
        """A line of `nvidia-smi -q` that says that nothing is wrong."""

    def take(self, line: Line) -> bool:
        text = line.text
        gpu, memory, process = _GPU.match(text), _MEMORY.search(text), _PROCESS.match(text)
        if gpu:
            self._gpus.append((gpu["index"], gpu["bus"], gpu["ecc"], line))
        if memory and len(self._memory) < 1000:
            self._memory.append(
                (
                    int(memory["used"]),
                    int(memory["total"]),
                    int(memory["util"]) if memory["util"] != "N/A" else None,
                    line,
                )
            )
        if process and len(self._processes) < 5000:
            self._processes.append((process["gpu"], process["name"], int(process["size"]), line))
            self.holders.add(int(process["pid"]))
        if _CALM.search(text):
            self.calm = line
        if "ERR!" in text:
            self._errors.append(line)
        return text.startswith(("|", "+")) or "NVIDIA-SMI" in text or not text.strip()

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        if self._errors:
            yield Signal(
                "gpu-hardware-fault",
                Says.STRONG,
                "nvidia-smi shows ERR! for a GPU",
                [line.evidence() for line in self._errors[:3]],
                condition=True,
                order=self._errors[0].order,
            )
        bad = [(index, bus, ecc, line) for index, bus, ecc, line in self._gpus if ecc.isdecimal() and int(ecc) > 0]
        if bad:
            index, bus, ecc, line = bad[0]
            yield Signal(
                "gpu-hardware-fault",
                Says.STRONG,
                f"GPU {index} ({bus}) has {ecc} uncorrected ECC errors",
                [item[3].evidence() for item in bad[:4]],
                {"device": index},
                condition=True,
                order=line.order,
            )
        held = [(name, size, line) for _, name, size, line in self._processes if size > 1024]
        full = [line for used, total, _, line in self._memory if used > 0.5 * total]
        if held and full:
            names = sorted({name for name, _, _ in held})
            yield Signal(
                "gpu-memory-occupied",
                Says.HINT,
                f"GPU memory is held by {', '.join(names[:4])}",
                [line.evidence() for _, _, line in held[:4]],
                condition=True,
                order=held[0][2].order,
            )
        idle = [line for used, total, util, line in self._memory if used > 0.5 * total and util == 0]
        if idle and not held:
            yield Signal(
                "stale-process",
                Says.HINT,
                "GPU memory is in use, but no process is listed for it: a process of another container or an earlier run",
                [line.evidence() for line in idle[:4]],
                condition=True,
                order=idle[0].order,
            )
            yield Signal(
                "gpu-memory-occupied",
                Says.HINT,
                "GPU memory is in use, but no process is listed for it",
                [line.evidence() for line in idle[:4]],
                condition=True,
                order=idle[0].order + 0.5,
            )
