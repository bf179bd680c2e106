"""ncdiag bandwidth on a machine with two GPUs or more, against nccl-tests and a plain torch loop in the same run.

    python benchmarks/gpu/bandwidth.py --out DIR [--nccl-tests DIR] [--site DIR] [--backend nccl] [--only STEP…]

Steps: `refuse` (GPUs in use), `sockets` (two hosts in namespaces, one GPU each), `loop` (against torch's own loop), `small` (sizes up to 32 MiB), `limited` (their link limited by tbf: the figure follows),
`pairs` (four hosts, one behind a limited link: found), `nvlink` (all operations, nccl-tests before and after), `two` (two of more GPUs), `shm` (P2P off), `ctrl-c`
(nothing stays), `baseline`, `model`. Every step has a time limit and keeps its output in DIR; DIR/summary.json has what matters. Hosts are
reached by a stand-in for ssh that enters their namespaces. NVLink multicast is left as the environment sets it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

LARGE = 16 << 20
SSH = """#!/bin/sh
# Takes ssh's options and enters the namespaces of the host that is named.
while [ $# -gt 0 ]; do case "$1" in -o|-F|-l) shift 2;; -*) shift;; *) break;; esac; done
node=$1; shift
case "$node" in
{cases}
*) echo "ssh: Could not resolve hostname $node" >&2; exit 255;;
esac
"""
LOOP = """
import json, os, sys, time, datetime, torch, torch.distributed as dist
rank, world, device, cuda = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "nccl"
dist.init_process_group(sys.argv[4], init_method=sys.argv[5], rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60))
where = torch.device("cuda", device) if cuda else torch.device("cpu")
if cuda: torch.cuda.set_device(where)
found = {}
for size in map(int, sys.argv[6].split(",")):
    x = torch.ones(size // 4, device=where)
    for _ in range(5): dist.all_reduce(x)
    if cuda: torch.cuda.synchronize()
    dist.barrier()
    if cuda: torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(20): dist.all_reduce(x)
    if cuda: torch.cuda.synchronize()
    found[size] = size / ((time.perf_counter() - began) / 20) / 1e9 * 2 * (world - 1) / world
if rank == 0: print(json.dumps(found))
dist.destroy_process_group()
"""
HOLDER = "import torch, time; x = torch.ones(1 << 28, device='cuda:0'); print('holding', flush=True); time.sleep(120)"


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.python, self.backend, self.tests = options.python, options.backend, options.nccl_tests
        self.cuda = self.backend == "nccl"
        self.scratch = Path(tempfile.mkdtemp(prefix="ncdiag-bw-"))
        self.env = {**os.environ, "PYTHONPATH": f"{ROOT}:{options.site or ''}"}
        self.summary: dict[str, Any] = {}
        self.build: subprocess.Popen[bytes] | None = None

    def ncdiag(
        self, name: str, *extra: str, env: dict[str, str] | None = None, limit_s: float = 120
    ) -> tuple[int, Any]:
        """Runs `ncdiag bandwidth`; its JSON, else what it said."""
        argv = [
            sys.executable,
            "-m",
            "ncdiag",
            "bandwidth",
            "--python",
            self.python,
            "--backend",
            self.backend,
            "--format",
            "json",
            *extra,
        ]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=limit_s, env={**self.env, **(env or {})}, check=False
        )
        (self.out / f"{name}.json").write_text(done.stdout)
        (self.out / f"{name}.err").write_text(done.stderr[-20000:])
        return done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout + done.stderr

    # --- nccl-tests ---------------------------------------------------------------------------------------------------------------------

    def start_build(self) -> None:
        if (
            not self.tests
            or not self.cuda
            or (shutil.which("nvcc") is None and not Path("/usr/local/cuda/bin/nvcc").exists())
        ):
            return
        home = self.scratch / "nccl"
        script = "import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])"
        found = Path(
            subprocess.run([self.python, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
        )
        (home / "lib").mkdir(parents=True)
        (home / "include").symlink_to(found / "include")
        for name in ("libnccl.so", "libnccl.so.2"):
            (home / "lib" / name).symlink_to(found / "lib" / "libnccl.so.2")
        copy = self.scratch / "nccl-tests"
        shutil.copytree(self.tests, copy)
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        cuda = Path(nvcc).resolve().parent.parent
        builds = f"BUILDDIR={copy}/build"
        make = [
            "make",
            "-C",
            str(copy / "src"),
            "-j16",
            builds,
            f"NCCL_HOME={home}",
            f"CUDA_HOME={cuda}",
            "NVCC_GENCODE=-gencode=arch=compute_90,code=sm_90",
        ]
        targets = [
            f"{copy}/build/{name}_perf"
            for name in ("all_reduce", "all_gather", "reduce_scatter", "sendrecv", "alltoall")
        ]
        log = (self.out / "build.log").open("wb")
        script = f"{' '.join(make)} os.build && {' '.join(make)} {' '.join(targets)}"
        self.build = subprocess.Popen(["sh", "-c", script], stdout=log, stderr=log, start_new_session=True)
        self.built, self.library = copy / "build", home / "lib"

    def nccl_tests(
        self,
        name: str,
        program: str,
        env: dict[str, str] | None = None,
        most: str = "1G",
        least: str = "8",
        gpus: int | None = None,
        graphs: int = 0,
    ) -> list[Any]:
        """Rows of one nccl-tests program, one thread a GPU, all GPUs unless told; empty where it could not be built. `graphs`: launched as so many graphs."""
        from ncdiag.bandwidth import results

        if self.build is None or self.build.wait(200) != 0:
            return []
        argv = [
            str(self.built / f"{program}_perf"),
            "-b",
            least,
            "-e",
            most,
            "-f",
            "4",
            "-t",
            str(gpus or self.gpus()),
            "-g",
            "1",
            "-n",
            "20",
            "-w",
            "5",
            "-G",
            str(graphs),
        ]
        path = f"{self.library}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=90,
            env={**self.env, "LD_LIBRARY_PATH": path, **(env or {})},
            check=False,
        )
        (self.out / f"{name}.nccl-tests").write_text(done.stdout + done.stderr[-4000:])
        return results.nccl_tests(done.stdout).rows

    def gpus(self) -> int:
        script = "import torch; print(torch.cuda.device_count())"
        return int(subprocess.run([self.python, "-c", script], capture_output=True, text=True, check=True).stdout)

    def against(self, rows: Sequence[Any], report: Any) -> dict[str, Any]:
        """busbw of ncdiag over nccl-tests' by size, in place and not."""
        ours = {(row["size_bytes"], row["in_place"]): row["busbw_gbytes_s"] for row in report["rows"]}
        ratios = {
            f"{row.size_bytes}{' in place' if row.in_place else ''}": round(
                ours[row.size_bytes, row.in_place] / row.busbw, 4
            )
            for row in rows
            if (row.size_bytes, row.in_place) in ours and row.busbw > 0
        }
        large = [ratio for size, ratio in ratios.items() if int(size.split()[0]) >= LARGE]
        return {
            "ratios": ratios,
            "large_median": statistics.median(large) if large else None,
            "large_worst": max(large, key=lambda r: abs(r - 1), default=None),
        }

    # --- steps --------------------------------------------------------------------------------------------------------------------------

    def refuse(self) -> None:
        holder = subprocess.Popen([self.python, "-c", HOLDER], stdout=subprocess.PIPE)
        assert holder.stdout
        holder.stdout.readline()
        try:
            code, said = self.ncdiag("refuse", "--max", "1M")
            self.summary["refuse"] = {
                "exit": code,
                "said": said if isinstance(said, str) else "it ran",
                "names_pid": str(holder.pid) in str(said),
            }
        finally:
            holder.kill()
            holder.wait()

    def hosts(self, count: int) -> Any:
        from hosts import lab

        return lab(count, shm="4g")

    def stand_in(self, lab: Any) -> dict[str, str]:
        """A folder with `ssh` in front of PATH."""
        folder = self.scratch / f"bin{time.time_ns()}"
        folder.mkdir()
        gpus = self.gpus() if self.cuda else 0
        cases = ""
        for host in lab.hosts:
            entering = " ".join(
                host.argv(
                    [
                        "env",
                        *([f"CUDA_VISIBLE_DEVICES={host.number % gpus}"] if gpus else []),
                        f"HOSTNAME={host.name}",
                        f"SSH_CONNECTION='10.77.0.254 1 {host.address} 22'",
                        "NCCL_SOCKET_IFNAME=eth0",
                        "sh",
                        "-c",
                    ]
                )
            )
            cases += f'{host.name}) exec {entering} "$*";;\n'
        (folder / "ssh").write_text(SSH.format(cases=cases))
        (folder / "ssh").chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}

    def sockets(self) -> None:
        with self.hosts(2) as lab:
            code, report = self.ncdiag(
                "sockets",
                "--nodes",
                "ssh:node[0-1]",
                "--min",
                "64K",
                "--max",
                "64M",
                "--factor",
                "8",
                "--seconds",
                "1",
                "--isolate",
                "never",
                env=self.stand_in(lab),
            )
            sizes = [row["size_bytes"] for row in report["rows"] if row["in_place"]]
            loop = self._loop(lab, sizes)
            ours = {row["size_bytes"]: row["busbw_gbytes_s"] for row in report["rows"] if row["in_place"]}
            self.summary["sockets"] = {
                "exit": code,
                "ncdiag": ours,
                "torch_loop": loop,
                "expectation": report["expectation"],
                "findings": _said(report),
                "ratio": {size: ours[size] / loop[str(size)] for size in sizes if str(size) in loop},
            }

    def loop(self) -> None:
        """In place against a plain torch loop, on this machine's first two GPUs: P2P, then through shared memory."""
        found = {}
        for name, off, most in (("p2p", {}, "512M"), ("shm", {"NCCL_P2P_DISABLE": "1"}, "128M")):
            code, report = self.ncdiag(
                f"loop-{name}",
                "--ranks-per-node",
                "2",
                "--min",
                "8M",
                "--max",
                most,
                "--factor",
                "4",
                "--seconds",
                "0.4",
                "--isolate",
                "never",
                env=off,
                limit_s=60,
            )
            ours = {str(row["size_bytes"]): row["busbw_gbytes_s"] for row in report["rows"] if row["in_place"]}
            argv = [
                [
                    self.python,
                    "-c",
                    LOOP,
                    str(rank),
                    "2",
                    str(rank),
                    self.backend,
                    "tcp://127.0.0.1:29545",
                    ",".join(ours),
                ]
                for rank in range(2)
            ]
            reference = self._answer([(words, {**self.env, **off}) for words in argv])
            found[name] = {
                "exit": code,
                "ncdiag": ours,
                "torch_loop": reference,
                "ratio": {size: round(ours[size] / reference[size], 4) for size in ours if size in reference},
                "expectation": report["expectation"],
                "findings": _said(report),
                "peak": _peak(report),
            }
            self.summary["loop"] = found

    def _answer(self, commands: Sequence[tuple[list[str], dict[str, str]]]) -> dict[str, float]:
        """What the first of some ranks prints."""
        running = [
            subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
            for argv, env in commands
        ]
        try:
            out = running[0].communicate(timeout=60)[0]
            found: dict[str, float] = json.loads(out) if out.startswith("{") else {}
            for process in running[1:]:
                process.wait(20)
            return found
        finally:
            for process in running:
                process.kill()

    def _loop(self, lab: Any, sizes: Sequence[int]) -> dict[str, float]:
        gpus = self.gpus() if self.cuda else 0
        commands = []
        for host in lab.hosts[:2]:
            argv = [
                self.python,
                "-c",
                LOOP,
                str(host.number),
                "2",
                "0",
                self.backend,
                f"tcp://{lab.hosts[0].address}:29544",
                ",".join(map(str, sizes)),
            ]
            env = {
                **self.env,
                "NCCL_SOCKET_IFNAME": "eth0",
                "GLOO_SOCKET_IFNAME": "eth0",
                **({"CUDA_VISIBLE_DEVICES": str(host.number % gpus)} if gpus else {}),
            }
            commands.append((host.argv(argv), env))
        return self._answer(commands)

    def limited(self) -> None:
        found = {}
        for gbit in (1.0, 4.0):
            with self.hosts(2) as lab:
                _limit(lab, 1, gbit)
                code, report = self.ncdiag(
                    f"limited-{gbit:g}",
                    "--nodes",
                    "ssh:node[0-1]",
                    "--min",
                    "4M",
                    "--max",
                    "64M",
                    "--factor",
                    "4",
                    "--seconds",
                    "2",
                    "--isolate",
                    "never",
                    env=self.stand_in(lab),
                )
                busbw = {
                    row["size_bytes"]: round(row["busbw_gbytes_s"] * 8, 4) for row in report["rows"] if row["in_place"]
                }
                found[f"{gbit:g} Gbit/s"] = {
                    "exit": code,
                    "busbw_gbits_s": busbw,
                    "over_limit": {size: round(value / gbit, 3) for size, value in busbw.items()},
                }
        self.summary["limited"] = found

    def pairs(self) -> None:
        with self.hosts(4) as lab:
            _limit(lab, 3, 0.5)
            code, report = self.ncdiag(
                "pairs",
                "--nodes",
                "ssh:node[0-3]",
                "--min",
                "1M",
                "--max",
                "1M",
                "--seconds",
                "0.5",
                "--isolate",
                "always",
                "--share",
                "--pair-size",
                "8M",
                env=self.stand_in(lab),
                limit_s=170,
            )
            tests = [(test["nodes"], test["busbw_gbytes_s"]) for test in report["isolation"]["tests"]]
            self.summary["pairs"] = {
                "exit": code,
                "findings": _said(report),
                "rounds": report["isolation"]["rounds"],
                "tests": tests,
            }

    def _all_reduce(self, name: str, gpus: int) -> dict[str, Any]:
        first = self.nccl_tests(f"{name}-before", "all_reduce", gpus=gpus)
        size = ["--max", "1G", "--factor", "4", "--seconds", "1", "--isolate", "never", "--ranks-per-node", str(gpus)]
        code, report = self.ncdiag(name, *size)
        again = self.nccl_tests(f"{name}-after", "all_reduce", gpus=gpus)
        return {
            "exit": code,
            "against_before": self.against(first, report),
            "against_after": self.against(again, report),
            "nccl_tests_with_itself": self.against(first, {"rows": [row.as_dict() for row in again]}),
            "expectation": report["expectation"],
            "findings": _said(report),
            "peak": _peak(report),
        }

    def small(self) -> None:
        """Up to 32 MiB on two GPUs, against nccl-tests as it is, in graphs, and without what only threads of one process can do."""
        programs = {"all_reduce": "all_reduce", "all_gather": "all_gather", "all_to_all": "alltoall", "send_recv": "sendrecv"}  # fmt: skip
        others: dict[str, dict[str, Any]] = {
            "before": {},
            "graphs": {"graphs": 4},
            "processes": {"env": {"NCCL_P2P_DIRECT_DISABLE": "1"}},
        }
        reference = {
            (op, kind): self.nccl_tests(f"small-{op}-{kind}", program, most="64M", gpus=2, **how)
            for op, program in programs.items()
            for kind, how in others.items()
        }
        asked = [word for op in programs for word in ("--op", op)]
        size = ["--max", "64M", "--factor", "4", "--seconds", "0.4", "--isolate", "never", "--ranks-per-node", "2"]
        code, report = self.ncdiag("small", *asked, *size)
        found: dict[str, Any] = {"exit": code, "findings": _said(report)}
        for op, program in programs.items():
            reference[op, "after"] = self.nccl_tests(f"small-{op}-after", program, most="64M", gpus=2)
            rows = [row for row in report["rows"] if row["op"] == op]
            found[op] = {
                "us": {f"{row['size_bytes']}{' in place' if row['in_place'] else ''}": round(row["time_s"] * 1e6, 2) for row in rows},
                "one_by_one": [row["size_bytes"] for row in rows if not row["graph"]],
                **{
                    kind: self.against(reference[op, kind], _nearest(reference[op, kind], {"rows": rows}))["ratios"]
                    for kind in (*others, "after")
                },
            }  # fmt: skip
        self.summary["small"] = found

    def two(self) -> None:
        self.summary["two"] = self._all_reduce("two", 2)

    def nvlink(self) -> None:
        self.summary["nvlink"] = self._all_reduce("nvlink", self.gpus())
        others = {}
        for op, program in (
            ("all_gather", "all_gather"),
            ("reduce_scatter", "reduce_scatter"),
            ("send_recv", "sendrecv"),
            ("all_to_all", "alltoall"),
        ):
            reference = self.nccl_tests(f"nvlink-{op}", program, most="256M", least="1M")
            code, report = self.ncdiag(
                f"nvlink-{op}",
                "--op",
                op,
                "--min",
                "1M",
                "--max",
                "256M",
                "--factor",
                "4",
                "--seconds",
                "0.5",
                "--isolate",
                "never",
            )
            by = {**self.against([row for row in reference if row.size_bytes >= 1 << 20], _nearest(reference, report))}
            others[op] = {"exit": code, "peak": _peak(report), **by}
        self.summary["nvlink"]["others"] = others

    def shm(self) -> None:
        off = {"NCCL_P2P_DISABLE": "1"}
        reference = self.nccl_tests("shm", "all_reduce", off, "256M")
        code, report = self.ncdiag(
            "shm", "--max", "256M", "--factor", "4", "--seconds", "1", "--isolate", "never", env=off
        )
        self.summary["shm"] = {
            "exit": code,
            **self.against(reference, report),
            "expectation": report["expectation"],
            "findings": _said(report),
            "peak": _peak(report),
        }

    def ctrl_c(self) -> None:
        argv = [
            sys.executable,
            "-m",
            "ncdiag",
            "-q",
            "bandwidth",
            "--python",
            self.python,
            "--backend",
            self.backend,
            "--ranks-per-node",
            "2",
            "--seconds",
            "20",
        ]
        process = subprocess.Popen(argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(14)
        during = _holders()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        time.sleep(1)
        self.summary["ctrl-c"] = {
            "exit": process.returncode,
            "gpu_processes_during": during,
            "gpu_processes_after": _holders(),
        }

    def baseline(self) -> None:
        kept = str(self.scratch / "kept.json")
        size = [
            "--min",
            "64M",
            "--max",
            "256M",
            "--factor",
            "4",
            "--seconds",
            "1",
            "--ranks-per-node",
            "2",
            "--isolate",
            "never",
        ]
        self.ncdiag("baseline-saved", *size, "--save-baseline", kept)
        code, report = self.ncdiag("baseline-same", *size, "--baseline", kept)
        slow, worse = self.ncdiag("baseline-worse", *size, "--baseline", kept, env={"NCCL_MAX_NCHANNELS": "2"})
        self.summary["baseline"] = {
            "same": {"exit": code, "changes": report["changes"]},
            "two channels": {"exit": slow, "findings": _said(worse)},
        }

    def model(self) -> None:
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 8192,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "intermediate_size": 28672,
            "vocab_size": 128256,
            "max_position_embeddings": 8192,
            "torch_dtype": "bfloat16",
            "tie_word_embeddings": False,
        }
        path = self.scratch / "config.json"
        path.write_text(json.dumps(config))
        code, report = self.ncdiag(
            "model",
            "--model",
            str(path),
            "--min",
            "16K",
            "--max",
            "256M",
            "--factor",
            "4",
            "--seconds",
            "0.5",
            "--ranks-per-node",
            "2",
            "--dtype",
            "bfloat16",
            "--isolate",
            "never",
        )
        self.summary["model"] = {"exit": code, "engine": report["engine"], "self": report["self_tests"]}


def _limit(lab: Any, number: int, gbit: float) -> None:
    """No more than this passes to a host from the router; two milliseconds at once."""
    rate = int(gbit * 125e6)
    tbf = {
        "kind": "tbf",
        "dev": f"port{number}",
        "handle": 0x10000,
        "rate": rate,
        "burst": max(rate // 500, 1 << 16),
        "latency": "50ms",
    }
    lab.router.netlink(("tc", "add", tbf))


def _said(report: Any) -> list[str]:
    return [f"{finding['status']}: {finding['summary']}" for finding in report["findings"]]


def _peak(report: Any) -> float:
    return max((row["busbw_gbytes_s"] for row in report["rows"]), default=0.0)


def _nearest(reference: Sequence[Any], report: Any) -> Any:
    """Rows under the size that nccl-tests gives a like run: it rounds totals to whole elements a rank in its own way."""
    sizes = [row.size_bytes for row in reference]
    rows = [
        {**row, "size_bytes": min(sizes, key=lambda size: abs(size - row["size_bytes"]), default=row["size_bytes"])}
        for row in report["rows"]
    ]
    return {"rows": rows}


def _holders() -> list[str]:
    try:
        asked = subprocess.run(
            ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except OSError:
        return []
    return [line for line in asked.stdout.splitlines() if re.search(r"\d", line)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--site")
    parser.add_argument("--nccl-tests")
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--deadline", type=float, default=470, help="seconds after which no step is begun")
    options = parser.parse_args()
    if options.site:
        sys.path.insert(0, options.site)
        os.environ["PYTHONPATH"] = options.site  # for what is started inside the hosts
    bench = Bench(options)
    began = time.monotonic()
    steps: list[tuple[str, Callable[[], None]]] = [
        ("refuse", bench.refuse), ("loop", bench.loop), ("small", bench.small), ("nvlink", bench.nvlink), ("two", bench.two), ("shm", bench.shm), ("sockets", bench.sockets), ("limited", bench.limited), ("pairs", bench.pairs),
        ("ctrl-c", bench.ctrl_c), ("baseline", bench.baseline), ("model", bench.model),
    ]  # fmt: skip
    try:
        bench.start_build()
    except (OSError, subprocess.SubprocessError) as error:
        print(f"nccl-tests cannot be built: {error}", flush=True)
    for name, step in steps:
        if options.only and name not in options.only:
            continue
        if time.monotonic() - began > options.deadline:
            print(f"{name}: left out, no time", flush=True)
            continue
        start = time.monotonic()
        try:
            step()
            print(f"{name}: {time.monotonic() - start:.1f} s {json.dumps(bench.summary.get(name))[:1500]}", flush=True)
        except Exception as error:  # one step must not take the others along
            bench.summary[name] = {"failed": f"{type(error).__name__}: {error}"[:2000]}
            print(f"{name}: FAILED after {time.monotonic() - start:.1f} s: {error!r}"[:1500], flush=True)
        (bench.out / "summary.json").write_text(json.dumps(bench.summary, indent=1))
    if bench.build is not None and bench.build.poll() is None:
        os.killpg(bench.build.pid, signal.SIGKILL)
    shutil.rmtree(bench.scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
