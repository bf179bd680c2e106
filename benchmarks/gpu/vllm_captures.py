"""Real vLLM over hosts of this machine, healthy and broken: vllm_captures.py FOLDER --model MODEL [CASE…].

Needs vLLM in the interpreter of --python. Besides what every capture keeps: the engine's log on every host, and how long completions took
before and during a dump. `--cpu` tries it out with the CPU build.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from captures import Run, run_all
from cases import FINE, OVER_TCP
from hosts import Host, Lab, program, wait_for

READY_S = 150.0
LOADED = re.compile(r"Model loading took|Loading weights took")
MASTER_PORT = 29501
ENGINE = [
    "--served-model-name",
    "tiny",
    "--dtype",
    "bfloat16",
    "--max-model-len",
    "512",
    "--max-num-seqs",
    "4",
    "--max-num-batched-tokens",
    "512",
]
SMALL = ("--kv-cache-memory-bytes", str(256 << 20), "--gpu-memory-utilization", "0.1")
_ASK = """import sys, urllib.request as u
print(u.urlopen(u.Request(sys.argv[1], sys.argv[2].encode() or None, {"Content-Type": "application/json"}), timeout=float(sys.argv[3])).read().decode())"""


@dataclass(frozen=True)
class Case:
    """One engine. `act` is done before the start, or once it is at `at` (load, ready); `init`: the worker of node 0 meets the others."""

    name: str
    done: str
    causes: tuple[str, ...] = FINE
    culprits: tuple[int, ...] = ()
    stage: str = ""
    """The culprits' stage; empty where it is left to chance."""
    logs: tuple[str, ...] | None = None
    decidable: str = "yes"
    one_host: tuple[str, ...] = ()
    hosts: int = 2
    parallel: str = "tp"
    env_of: dict[int, dict[str, str]] = field(default_factory=dict)
    absent: tuple[int, ...] = ()
    hide_model: tuple[int, ...] = ()
    options: tuple[str, ...] = ()
    options_of: dict[int, tuple[str, ...]] = field(default_factory=dict)
    at: str = "init"
    act: tuple[str, int] | None = None
    """`stop` or `kill` the worker of a host, `cut`, `firewall` what goes to a host."""
    dump_s: float = 15.0
    """Seconds from there to the dump; of healthy starts dumps are taken on the way and at the end."""
    request: bool = False
    """A completion is asked for after the fault."""

    @property
    def seats(self) -> int:
        return 1


CASES = (
    Case("vllm-healthy", "TP=2 over two hosts, becomes ready", logs=OVER_TCP),
    Case("vllm-healthy-pp", "PP=2 over two hosts, becomes ready", parallel="pp", logs=OVER_TCP),
    Case("vllm-healthy-one-host", "TP=2 on one host, becomes ready", hosts=1),
    Case("vllm-missing-node", "node 1 is not started", ("rank-missing",), (1,), absent=(1,), decidable="no"),
    Case(
        "vllm-decoy",
        "NCCL_SOCKET_IFNAME=docker0 on node 1",
        ("socket-ifname-wrong",),
        (1,),
        env_of={1: {"NCCL_SOCKET_IFNAME": "docker0"}},
        stage="nccl-init",
    ),
    Case(
        "vllm-decoy-gloo",
        "GLOO_SOCKET_IFNAME=docker0 on node 1; node 1 dials, so it does no harm",
        env_of={1: {"GLOO_SOCKET_IFNAME": "docker0"}},
        logs=OVER_TCP,
    ),
    Case(
        "vllm-host-ip",
        "VLLM_HOST_IP of node 0 is the address of docker0",
        ("node-ip-wrong-interface",),
        (),
        env_of={0: {"VLLM_HOST_IP": "172.17.0.1"}},
        dump_s=25,
        decidable="no",
    ),
    Case(
        "vllm-stopped-loading",
        "SIGSTOP to the worker of node 1 while it loads",
        ("rank-stopped",),
        (1,),
        at="load",
        act=("stop", 1),
        dump_s=20,
        decidable="no",
        stage="load-weights",
    ),
    Case(
        "vllm-stopped-serving",
        "SIGSTOP to the worker of node 1 when it is ready",
        ("rank-stopped",),
        (1,),
        at="ready",
        act=("stop", 1),
        request=True,
        dump_s=15,
        decidable="no",
    ),
    Case(
        "vllm-killed-serving",
        "SIGKILL to the worker of node 1 when it is ready",
        ("rank-died", "rank-missing"),
        (),
        at="ready",
        act=("kill", 1),
        request=True,
        dump_s=4,
        logs=("rank-died", "rank-missing", "unresolved"),
        decidable="no",
    ),
    Case("vllm-missing-model", "node 1 has no model", (), (), hide_model=(1,), logs=("model-path-missing",)),
    Case(
        "vllm-cut-start",
        "nothing reaches node 1, from the start",
        ("bootstrap-peer-unreachable", "bootstrap-blocked-firewall"),
        (),
        act=("cut", 1),
        decidable="no",
        one_host=("rank-missing",),
    ),
    Case(
        "vllm-cut-loaded",
        "nothing reaches node 1 once it loads",
        ("bootstrap-peer-unreachable",),
        (),
        at="load",
        act=("cut", 1),
        dump_s=20,
        decidable="no",
    ),
    Case(
        "vllm-firewall",
        "only the store's port is open towards node 1",
        ("bootstrap-blocked-firewall",),
        (),
        act=("firewall", 1),
        decidable="no",
    ),
    Case(
        "vllm-other-size",
        "node 1 is told --pipeline-parallel-size 2",
        ("rank-layout-wrong", "parallel-size-mismatch"),
        (),
        options_of={1: ("--pipeline-parallel-size", "2", "--tensor-parallel-size", "1")},
        decidable="no",
    ),
    Case(
        "vllm-stopped-one-host",
        "SIGSTOP to a worker of one host when it is ready",
        ("rank-stopped",),
        (1,),
        hosts=1,
        at="ready",
        act=("stop", 0),
        request=True,
        dump_s=15,
        decidable="no",
    ),
)


class EngineRun(Run):
    """One engine; processes by host."""

    def __init__(self, case: Case, port: int, options: argparse.Namespace) -> None:
        super().__init__(case.name, case.done, options.folder.resolve() / case.name)
        self.case, self.port, self.options = case, port, options

    def steps(self, hosts: Lab) -> None:
        if self.case.act and self.case.at == "init":
            self._act(hosts)
        self._start(hosts)
        if self.case.name.startswith("vllm-healthy"):
            self._watch(hosts)
            return
        at = {
            "init": lambda: "world_size=2 rank=0" in self._log(0),
            "load": self._loading,
            "ready": lambda: self._ready(hosts.hosts[0]),
        }
        if not self._come(self.case.at, at[self.case.at]) and self.case.at != "init":
            return
        if self.case.at != "init":
            self._act(hosts)
        asker = threading.Thread(target=self._ask, args=(hosts.hosts[0], self.case.dump_s + 20), daemon=True)
        if self.case.request:
            asker.start()
        wait_for(lambda: not self.running(), self.case.dump_s)
        self.result["running"] = self.running()
        self.dumps(hosts, self._of)
        if self.case.request:
            asker.join(self.case.dump_s + 20)

    def _watch(self, hosts: Lab) -> None:
        """A start that comes to its end, looked at on the way, when ready, and at work."""
        for tag, seconds in (("-12s", 12.0), ("-24s", 12.0)):
            time.sleep(seconds * self.options.slow)
            self.dumps(hosts, self._of, tag, recorder=False)
        if not self._come("ready", lambda: self._ready(hosts.hosts[0])):
            self.dumps(hosts, self._of, "-late")
            return
        before = [self._ask(hosts.hosts[0], 60) for _ in range(5)]
        taker = threading.Thread(target=self.dumps, args=(hosts, self._of, "-ready"))
        taker.start()
        during = []
        while taker.is_alive():
            during.append(self._ask(hosts.hosts[0], 60))
        taker.join()
        self.result["completions_s"] = {"before": before[1:], "during": during}

    def _of(self, host: Host) -> int | None:
        return host.number if host.number in self.running() else None

    def _start(self, hosts: Lab) -> None:
        flag = {"tp": "--tensor-parallel-size", "pp": "--pipeline-parallel-size"}[self.case.parallel]
        for host in hosts.hosts:
            if host.number in self.case.absent:
                continue
            argv = [
                self.options.python,
                self.options.vllm,
                "serve",
                self.options.model,
                *ENGINE,
                *SMALL,
                "--enforce-eager",
                flag,
                "2",
                "--distributed-executor-backend",
                "mp",
                *self.case.options,
            ]
            if self.case.hosts > 1:
                argv += [
                    "--nnodes",
                    str(self.case.hosts),
                    "--node-rank",
                    str(host.number),
                    "--master-addr",
                    "10.77.0.1",
                    "--master-port",
                    str(MASTER_PORT + self.port),
                ]
            argv += ["--headless"] if host.number else ["--host", "0.0.0.0", "--port", "8000"]
            argv += self.case.options_of.get(host.number, ())
            self.processes[host.number] = host.start(argv, self._environment(host), self.place / f"{host.name}.log")
        self.note(f"started {sorted(self.processes)}")

    def _environment(self, host: Host) -> dict[str, str]:
        env = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "NO_COLOR": "1",
            "NCCL_DEBUG": "INFO",
            "NCCL_HOSTID": host.name,
            "NCCL_SOCKET_IFNAME": "eth0",
            "GLOO_SOCKET_IFNAME": "eth0",
            "VLLM_HOST_IP": host.address,
            "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
            "VLLM_ALLREDUCE_USE_FLASHINFER": "0",
            "VLLM_USE_DEEP_GEMM": "0",
            "VLLM_USE_FLASHINFER_SAMPLER": "0",
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_FR_DUMP_TEMP_FILE": f"{self.place}/recorder_",
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{self.place}/recorder_",
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{self.place}/recorder-pipe_",
        }
        if self.case.hosts > 1:
            env["CUDA_VISIBLE_DEVICES"] = str(host.number % self.options.gpus)
        if self.options.cpu:
            env.update(VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1", VLLM_CPU_CI_ENV="1")
        env.update(self.case.env_of.get(host.number, {}))
        return env

    def _log(self, number: int) -> str:
        file = self.place / f"node{number}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def _loading(self) -> bool:
        return bool(
            LOADED.search(self._log(1))
            or "Starting to load model" in self._log(1)
            or re.search(r"VLLM::Worker_", self._titles(1))
        )

    def _ready(self, host: Host) -> bool:
        return "Application startup complete" in self._log(0) and self._http(host, "/health", "", 5) is not None

    def _come(self, what: str, condition: Callable[[], bool]) -> bool:
        wait_for(lambda: condition() or len(self.running()) < len(self.processes), READY_S * self.options.slow)
        came = condition()
        self.note(f"{what}: {'yes' if came else 'no'}; running {self.running()}")
        return came

    def _workers(self, number: int) -> list[psutil.Process]:
        process = program(self.processes[number])
        found = []
        for child in process.children(recursive=True) if process is not None else []:
            try:
                if "VLLM::Worker" in " ".join(child.cmdline()):
                    found.append(child)
            except psutil.Error:
                continue
        return found

    def _titles(self, number: int) -> str:
        return " ".join(" ".join(worker.cmdline()) for worker in self._workers(number))

    def _act(self, hosts: Lab) -> None:
        what, whom = self.case.act or ("", 0)
        if what in ("stop", "kill"):
            worker = self._workers(whom)[-1]
            worker.send_signal(signal.SIGSTOP if what == "stop" else signal.SIGKILL)
            self.note(f"{what} {worker.pid}")
        elif what:
            hosts.cut(whom, but=MASTER_PORT + self.port if what == "firewall" else None)
            self.note(f"{what} {whom}")

    def _http(self, host: Host, path: str, body: str, limit_s: float) -> str | None:
        done = host.run(
            [sys.executable, "-S", "-c", _ASK, f"http://127.0.0.1:8000{path}", body, str(limit_s)], limit_s + 10
        )
        return done.stdout if done.returncode == 0 else None

    def _ask(self, host: Host, limit_s: float) -> float | None:
        """Seconds of one completion; None when none came."""
        body = {
            "model": "tiny",
            "prompt": "the engine starts on two nodes",
            "max_tokens": 64,
            "temperature": 0.7,
            "seed": 1,
            "ignore_eos": True,
        }
        began = time.monotonic()
        answer = self._http(host, "/v1/completions", json.dumps(body), limit_s)
        self.note(f"completion {'in' if answer else 'not within'} {time.monotonic() - began:.2f} s")
        return round(time.monotonic() - began, 3) if answer else None

    def end(self) -> None:
        super().end()
        for path in self.place.glob("recorder-pipe_*"):
            path.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--model", required=True)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with vLLM")
    parser.add_argument("--vllm", help="the program vllm; beside the interpreter when not given")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="the CPU build of vLLM")
    parser.add_argument("--slow", type=float, default=1.0, help="factor on all waits")
    parser.add_argument("--seats", type=int, default=4, help="engines at a time")
    parser.add_argument("--until", type=float, default=330, help="seconds after which no further case is started")
    options = parser.parse_intermixed_args()
    options.model = str(Path(options.model).resolve())
    options.vllm = options.vllm or str(Path(options.python).parent / "vllm")
    options.folder.mkdir(parents=True, exist_ok=True)
    chosen = [
        case
        for case in CASES
        if (not options.names or case.name in options.names) and (case.hosts > 1 or options.gpus > 1 or options.cpu)
    ]

    def play(number: int, case: Case) -> dict[str, object]:
        hide = {host: str(Path(options.model).parent) for host in case.hide_model}
        return EngineRun(case, number, options).play(case.hosts, hide=hide)

    return run_all(chosen, options.seats, options.until, options.folder, play)


if __name__ == "__main__":
    sys.exit(main())
