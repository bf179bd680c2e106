"""Real NCCL in healthy and broken set-ups on this machine's GPUs: nccl_captures.py FOLDER [CASE…]. `--backend gloo` tries it out without a GPU.

Besides what every capture keeps: NCCL's topology and graph, flight-recorder dumps, and the time of every step of the healthy ones.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from captures import HERE, Run, run_all
from cases import CASES, STORE_PORT, Case
from hosts import Host, Lab, program, wait_for

COME_S = 45.0
_NEIGHBOUR = {
    "busy": "import torch; a = torch.randn(8192, 8192, device='cuda:%d')\nwhile True: a = (a @ a) / 90.0; torch.cuda.synchronize()",
    "memory": "import time, torch; free, _ = torch.cuda.mem_get_info(%d); keep = torch.empty(max(free - (700 << 20), 0), dtype=torch.uint8, device='cuda:%d'); "
    "print('held', flush=True); time.sleep(600)",
}


class JobRun(Run):
    """One case of `rank.py`; processes by rank (torchrun: by the first rank of the host)."""

    def __init__(self, case: Case, port: int, options: argparse.Namespace) -> None:
        super().__init__(case.name, case.done, options.folder.resolve() / case.name)
        self.case, self.port, self.options = case, port, options
        self.neighbour: subprocess.Popen[str] | None = None

    def steps(self, hosts: Lab) -> None:
        self._start_neighbour()
        (self.place / "cut.xml").write_text(
            '<system version="1">\n  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel">\n    <pci busid="0000:17:00.0" cla'
        )
        self._start(hosts)
        self._wait()
        self._act(hosts)
        time.sleep(self.case.settle_s)
        self.result["running"] = self.running()
        self.dumps(hosts, self._first_of)
        wait_for(lambda: not self.running(), self.case.end_s)

    def _start_neighbour(self) -> None:
        if not self.case.neighbour or self.options.backend != "nccl":
            return
        code = _NEIGHBOUR[self.case.neighbour].replace("%d", str(self.options.gpus - 1))
        self.neighbour = subprocess.Popen(
            [self.options.python, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        if self.case.neighbour == "memory" and self.neighbour.stdout:
            self.neighbour.stdout.readline()

    def _environment(self, rank: int, gpu: int, host: Host) -> dict[str, str]:
        place = str(self.place)
        env = {
            **os.environ,
            "WORLD_SIZE": str(self.case.world),
            "MASTER_ADDR": "10.77.0.1",
            "MASTER_PORT": str(self.port),
            "RANK": str(rank),
            "JOB_PLACE": place,
            "JOB_GPU": str(gpu % self.options.gpus),
            "JOB_BACKEND": self.options.backend,
            "PYTHONUNBUFFERED": "1",
            "NCCL_DEBUG": "INFO",
            "NCCL_HOSTID": host.name,
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_FR_DUMP_TEMP_FILE": f"{place}/recorder_",
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{place}/recorder_",
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{place}/recorder-pipe_",
        }
        if self.options.backend == "gloo":
            env.update(GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1")
        if self.case.name.startswith("healthy"):
            env.update(
                NCCL_TOPO_DUMP_FILE=f"{place}/topology.{rank}.xml", NCCL_GRAPH_DUMP_FILE=f"{place}/graph.{rank}.xml"
            )
        if self.case.fault:
            env.update(JOB_FAULT=self.case.fault[0], JOB_FAULT_RANK=str(self.case.fault[1]))
        if self.case.gate:
            env["JOB_GATE"] = f"{place}/gate"
        env.update(
            {
                name: value.replace("{place}", place)
                for name, value in {**self.case.env, **self.case.env_of.get(rank, {})}.items()
            }
        )
        return env

    def _start(self, hosts: Lab) -> None:
        first = 0
        for host, gpus in zip(hosts.hosts, self.case.hosts, strict=True):
            here = range(first, first + len(gpus))
            first += len(gpus)
            if set(here) <= set(self.case.absent):
                continue
            if self.case.torchrun:
                self._torchrun(host, here)
                continue
            for local, (rank, gpu) in enumerate(zip(here, gpus, strict=True)):
                if rank not in self.case.absent:
                    env = {
                        **self._environment(rank, gpu, host),
                        "LOCAL_RANK": str(local),
                        "LOCAL_WORLD_SIZE": str(len(gpus)),
                    }
                    self.processes[rank] = host.start(
                        [self.options.python, str(HERE / "rank.py")], env, self.place / f"rank{rank}.log"
                    )
        self.note(f"started {sorted(self.processes)}")

    def _torchrun(self, host: Host, here: range) -> None:
        env = self._environment(here[0], 0, host)
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "JOB_GPU"):
            env.pop(name, None)
        command = [
            self.options.python,
            "-m",
            "torch.distributed.run",
            f"--nnodes={len(self.case.hosts)}",
            f"--nproc-per-node={len(here)}",
            f"--node-rank={host.number}",
            "--master-addr=10.77.0.1",
            f"--master-port={self.port}",
            str(HERE / "rank.py"),
        ]
        self.processes[here[0]] = host.start(command, env, self.place / f"rank{here[0]}.log")

    def _first_of(self, host: Host) -> int | None:
        first = sum(len(gpus) for gpus in self.case.hosts[: host.number])
        return next(
            (rank for rank in self.running() if first <= rank < first + len(self.case.hosts[host.number])), None
        )

    def _marks(self, rank: int) -> str:
        file = self.place / f"rank{rank}.marks"
        return file.read_text() if file.exists() else ""

    def _wait(self) -> None:
        wanted = [rank for rank in range(self.case.world) if rank not in self.case.absent] if self.case.until else []
        done = wait_for(
            lambda: all(f" {self.case.until}" in self._marks(rank) for rank in wanted) or self._at_the_fault(wanted),
            COME_S,
        )
        self.note(
            f"{self.case.until or 'nothing'}: {'yes' if done else 'not within the time'}; running {self.running()}"
        )

    def _at_the_fault(self, wanted: list[int]) -> bool:
        """Nothing more can come: a rank is at its fault, or has gone."""
        return any(" fault" in self._marks(rank) for rank in wanted) or len(self.running()) < len(self.processes)

    def _act(self, hosts: Lab) -> None:
        for what, whom in self.case.act:
            process = program(self.processes[whom]) if what == "stop" else None
            if process is not None:
                process.send_signal(signal.SIGSTOP)
            elif what == "slow":
                hosts.slow(whom, 1_000_000)
            else:
                hosts.cut(
                    whom, "unreachable" if what == "reject" else "blackhole", None if what == "cut" else self.port
                )
            self.note(f"{what} {whom}")
        if self.case.gate:
            (self.place / "gate").touch()

    def end(self) -> None:
        super().end()
        if self.neighbour is not None:
            self.neighbour.kill()
            self.neighbour.wait()
        for path in [
            *self.place.glob("recorder-pipe_*"),
            *(self.place.glob("*.steps") if self.case.causes[:1] != ("healthy",) else ()),
        ]:
            path.unlink()


def count_gpus() -> int:
    import pynvml

    pynvml.nvmlInit()
    try:
        return int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--backend", default="nccl", choices=("nccl", "gloo"))
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    parser.add_argument("--gpus", type=int, help="how many there are; asked of NVML when not given")
    parser.add_argument("--seats", type=int, default=14, help="ranks at a time")
    parser.add_argument("--until", type=float, default=420, help="seconds after which no further case is started")
    options = parser.parse_intermixed_args()
    options.gpus = options.gpus or count_gpus()
    options.folder.mkdir(parents=True, exist_ok=True)
    chosen = []
    for case in CASES:
        if options.names and case.name not in options.names:
            continue
        if max(len(set(gpus)) for gpus in case.hosts) > options.gpus:
            print(f"left out, {options.gpus} GPU: {case.name}", flush=True)
        else:
            chosen.append(case)
    return run_all(
        chosen,
        options.seats,
        options.until,
        options.folder,
        lambda number, case: JobRun(case, STORE_PORT + number, options).play(len(case.hosts), shm=case.shm),
    )


if __name__ == "__main__":
    sys.exit(main())
