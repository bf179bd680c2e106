"""`ncdiag bringup` of real vLLM on this machine's GPUs: bringup.py FOLDER --model MODEL --vllm PROGRAM [CASE…].

Healthy starts with one GPU a rank, and starts whose second worker is stopped, killed, or finds its GPU's memory taken. FOLDER/CASE holds the
command's output, ncdiag's words, its JSON, its HTML report and its timeline; summary.json what matters.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from vllm_captures import ENGINE, SMALL

ROOT = Path(__file__).resolve().parent.parent.parent
HOLDER = "import torch, time; n = torch.cuda.mem_get_info(%d)[0] - (400 << 20); x = torch.empty(n, dtype=torch.uint8, device='cuda:%d'); print('held', flush=True); time.sleep(600)"
LIMIT_S = 110
WITHOUT_FLASHINFER = {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # else the sampler imports it, and the start fails
    "VLLM_ALLREDUCE_USE_FLASHINFER": "0",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",  # needs NVLink multicast, which such slim installations are run without
    "VLLM_USE_DEEP_GEMM": "0",
}
"""What vLLM is told where the module flashinfer is missing: a slim installation, whose ways around it vLLM does not all find by itself."""


@dataclass(frozen=True)
class Case:
    name: str
    done: str
    cause: str = ""
    """What it has to say; empty: it comes up."""
    ranks: int = 2
    signal: int = 0
    """Sent to the worker of rank 1 as soon as it bears its name."""
    taken: bool = False
    engine: tuple[str, ...] = ("--enforce-eager", *SMALL)
    options: tuple[str, ...] = ()


CASES = (
    Case("healthy", "becomes ready"),
    Case("healthy-four", "becomes ready on four GPUs", ranks=4),
    Case("healthy-graphs", "becomes ready, with torch.compile and CUDA graphs", engine=SMALL),
    Case("stopped-worker", "SIGSTOP to the worker of rank 1", "rank-stopped", signal=signal.SIGSTOP, options=("--stall-after", "12", "--on-stall", "stop")),
    Case("killed-worker", "SIGKILL to the worker of rank 1", "rank-died", signal=signal.SIGKILL),
    Case("memory-taken", "another program holds the memory of GPU 1", "gpu-memory-occupied", taken=True, engine=("--enforce-eager", "--gpu-memory-utilization", "0.5"),
         options=("--no-preflight",)),
)  # fmt: skip


def lacks(python: str, module: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 1


def worker(of: int) -> psutil.Process | None:
    """The worker of rank 1 below a process."""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(of).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "Worker_TP1" in " ".join(process.cmdline()):
                    return process
    return None


def play(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    place = options.folder / case.name
    place.mkdir(parents=True, exist_ok=True)
    holder = None
    if case.taken:
        code = HOLDER.replace("%d", "1")
        holder = subprocess.Popen([options.python, "-c", code], stdout=subprocess.PIPE, text=True)
        assert holder.stdout
        holder.stdout.readline()
    argv = [sys.executable, "-m", "ncdiag", "bringup", "--then", "stop", "--timeout", str(LIMIT_S), *case.options]
    argv += ["--quiet-child", str(place / "engine.log"), "--timeline", str(place / "timeline.json"), "--format", "json"]
    argv += ["-o", str(place / "result.json"), "--", options.python, options.vllm, "serve", options.model]
    argv += ["--port", "8123", "--tensor-parallel-size", str(case.ranks), *ENGINE, *case.engine]
    began = time.monotonic()
    try:
        with (place / "said.txt").open("w") as said:
            process = subprocess.Popen(argv, stdout=said, stderr=said, cwd=ROOT)
            acted = None
            while process.poll() is None and time.monotonic() - began < LIMIT_S + 60:
                found = worker(process.pid) if case.signal and acted is None else None
                if found is not None:
                    found.send_signal(case.signal)
                    acted = round(time.monotonic() - began, 1)
                time.sleep(0.1)
            if process.poll() is None:
                process.kill()
            process.wait()
    finally:
        if holder is not None:
            holder.kill()
            holder.wait()
    took = time.monotonic() - began
    result: dict[str, Any] = {"done": case.done, "exit": process.returncode, "seconds": round(took, 1), "acted": acted}
    result["after_fault_s"] = None if acted is None else round(took - acted, 1)
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((place / "result.json").read_text())
        causes = [
            {key: cause.get(key) for key in ("cause", "confidence", "where", "summary")}
            for cause in found.get("causes") or ()
        ]
        result.update(outcome=found.get("outcome"), stalls=found.get("stalls"), causes=causes[:3])
        first = (causes[0]["cause"], causes[0]["where"].get("rank")) if causes else ("", None)
        result["right"] = first == (case.cause, 1 if case.cause else None)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--model", required=True)
    parser.add_argument("--vllm", required=True, help="vLLM's program")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with vLLM")
    parser.add_argument("--until", type=float, default=400, help="seconds after which no further case is started")
    options = parser.parse_intermixed_args()
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")
    if lacks(options.python, "flashinfer"):
        for name, value in WITHOUT_FLASHINFER.items():
            os.environ.setdefault(name, value)
    began, summary = time.monotonic(), {}
    for case in CASES:
        if options.names and case.name not in options.names:
            continue
        if time.monotonic() - began > options.until:
            print(f"left out, no time: {case.name}", flush=True)
            continue
        summary[case.name] = play(case, options)
        print(case.name, json.dumps(summary[case.name])[:900], flush=True)
        (options.folder / "summary.json").write_text(json.dumps(summary, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
