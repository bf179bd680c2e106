"""The faults of a start, each with what has to be found: cause, node or rank, stage. `bench` runs them on real engines."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .bench import PORT, SERVE, Bench, Run, decoy, firewall, job_pid, signalled

HIGH = "tcp dport 32768-60999 tcp flags & (syn|ack) == syn drop"
"""New connections to high ports: gloo's mesh and the message queues, not the store."""
WORKER = r"\(Worker(?:_TP\d)? pid=(\d+)\)[^\n]*"
LOADING = WORKER + "Starting to load model"
HEALTHY, SLOW = "healthy", "slow"


@dataclass(frozen=True)
class Fault:
    """One way to break a start."""

    name: str
    shape: str
    what: str
    """What is broken, for the table."""
    break_it: Callable[[Bench], None]
    causes: tuple[str, ...]
    """The causes that are right; `healthy` or `slow`: it must come up without a finding."""
    node: str | None = None
    rank: int | None = None
    """Where it is, where that can be known; one of them must be said, and none may be said wrong."""
    stages: tuple[str, ...] = ()
    """The stages that are right; empty where a start that ended has none."""
    quick: bool = False
    """Whether it is short enough for every run of the tests."""

    def judge(self, run: Run) -> list[str]:
        """What is wrong with the answer; empty when it is right."""
        if self.causes[0] in (HEALTHY, SLOW):
            return _calm(run)
        found, wrong = run.cause, []
        if found.get("cause") not in self.causes:
            wrong.append(f"cause {found.get('cause')} ({found.get('confidence')}), not {' or '.join(self.causes)}")
        where = found.get("where", {})
        expected = {key: value for key, value in (("node", self.node), ("rank", self.rank)) if value is not None}
        named = {key for key, value in expected.items() if where.get(key) == value}
        if expected and (not named or any(where.get(key) not in (None, value) for key, value in expected.items())):
            wrong.append(f"where {where}, not {expected}")
        if self.stages and run.stage not in self.stages:
            wrong.append(f"stage {run.stage or '–'}, not {' or '.join(self.stages)}")
        return wrong


def _calm(run: Run) -> list[str]:
    wrong = [] if run.outcome in ("ready", "finished") else [f"it ended as {run.outcome}"]
    wrong += [f"a stall was called at {stall['at_s']} s: {stall['cause']}" for stall in run.result["stalls"]]
    wrong += [
        f"finding {cause['cause']}"
        for cause in [*run.result["causes"], *((run.result.get("summary") or {}).get("warnings") or [])]
    ]
    return wrong


FAULTS: dict[str, Fault] = {}


def fault(
    shape: str,
    what: str,
    *causes: str,
    name: str = "",
    node: str | None = None,
    rank: int | None = None,
    stages: tuple[str, ...] = (),
    quick: bool = False,
) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
    """Registers a function that breaks a bench, for one shape."""

    def register(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
        title = f"{shape}-{name or function.__name__.replace('_', '-')}"
        FAULTS[title] = Fault(title, shape, what, function, causes, node, rank, stages, quick)
        return function

    return register


RENDEZVOUS, MESH = ("rendezvous",), ("mesh", "groups")


@fault("gloo", "nothing", HEALTHY, quick=True)
@fault("tp2", "nothing", HEALTHY, quick=True)
@fault("nodes", "nothing", HEALTHY, quick=True)
@fault("ray", "nothing", HEALTHY, quick=True)
def healthy(made: Bench) -> None:
    """As it should be."""
    made.stall_after_s = 15.0


@fault("nodes", "nothing; PP=2 (start only)", HEALTHY)
@fault("ray", "nothing; PP=2 (start only)", HEALTHY)
def healthy_pp(made: Bench) -> None:
    """Pipeline parallelism on CPUs starts; its first request fails by a fault of vLLM's, so the request is not judged."""
    made.stall_after_s = 15.0
    made.parallel = {"a": "pipeline-parallel-size", "b": "pipeline-parallel-size"}


@fault("gloo", "master port dropped", "bootstrap-blocked-firewall", node="b", rank=1, stages=RENDEZVOUS, quick=True)
@fault("nodes", "master port dropped", "bootstrap-blocked-firewall", node="b", rank=1, stages=RENDEZVOUS, quick=True)
def port_dropped(made: Bench) -> None:
    made.before.append(firewall("b", f"tcp dport {PORT} drop"))


@fault(
    "gloo",
    "master port refused",
    "bootstrap-blocked-firewall",
    "bootstrap-peer-unreachable",
    node="b",
    rank=1,
    stages=RENDEZVOUS,
    quick=True,
)
@fault(
    "nodes",
    "master port refused",
    "bootstrap-blocked-firewall",
    "bootstrap-peer-unreachable",
    node="b",
    rank=1,
    stages=RENDEZVOUS,
)
def port_refused(made: Bench) -> None:
    made.before.append(firewall("a", f'tcp dport {PORT} iifname "eth0" reject with tcp reset', "input"))


@fault("gloo", "other master port on b", "bootstrap-peer-unreachable", node="b", rank=1, stages=RENDEZVOUS, quick=True)
@fault("nodes", "other master port on b", "bootstrap-peer-unreachable", node="b", rank=1, stages=RENDEZVOUS)
def other_port(made: Bench) -> None:
    made.port["b"] = PORT + 54


@fault(
    "gloo",
    "master address on b leads nowhere",
    "node-ip-wrong-interface",
    "bootstrap-peer-unreachable",
    node="b",
    rank=1,
    stages=RENDEZVOUS,
)
def master_unroutable(made: Bench) -> None:
    made.master["b"] = "10.99.0.1"


@fault("gloo", "second node never started", "rank-missing", node="b", rank=1, stages=RENDEZVOUS, quick=True)
@fault("nodes", "second node never started", "rank-missing", node="b", rank=1, stages=RENDEZVOUS)
def node_missing(made: Bench) -> None:
    made.skip.add("b")


@fault("gloo", "ranks disagree on the world size", "rank-layout-wrong", quick=True)
def world_size(made: Bench) -> None:
    made.env["b"]["WORLD_SIZE"] = "3"


@fault(
    "gloo",
    "both nodes are rank 0",
    "rank-layout-wrong",
    "port-in-use",
    "rank-missing",
    "bootstrap-peer-unreachable",
    stages=(),
)
@fault("nodes", "both nodes have --node-rank 0", "rank-layout-wrong", node="b")
def same_rank(made: Bench) -> None:
    made.node_rank["b"] = 0


@fault("nodes", "TP=2 on a, PP=2 on b", "rank-layout-wrong", "parallel-size-mismatch")
def parallel_differs(made: Bench) -> None:
    made.parallel["b"] = "pipeline-parallel-size"


@fault("gloo", "interface of GLOO_SOCKET_IFNAME is missing on b", "socket-ifname-wrong", node="b", rank=1, quick=True)
@fault("nodes", "interface of GLOO_SOCKET_IFNAME is missing on b", "socket-ifname-wrong", node="b", rank=1)
def interface_missing(made: Bench) -> None:
    made.env["b"]["GLOO_SOCKET_IFNAME"] = "ib0"


@fault("gloo", "GLOO_SOCKET_IFNAME=docker0 on both", "socket-ifname-wrong", quick=True)
@fault("nodes", "GLOO_SOCKET_IFNAME=docker0 on both", "socket-ifname-wrong")
def docker0(made: Bench) -> None:
    for host in ("a", "b"):
        made.before.append(decoy(host, "172.17.0.1/16"))
        made.env[host]["GLOO_SOCKET_IFNAME"] = "docker0"


@fault(
    "gloo",
    "interface with an unroutable address on b",
    "socket-ifname-wrong",
    node="b",
    rank=1,
    stages=MESH,
    quick=True,
)
@fault("nodes", "interface with an unroutable address on b", "socket-ifname-wrong", node="b", rank=1, stages=MESH)
def decoy_address(made: Bench) -> None:
    made.before.append(decoy("b", "10.5.0.1/24", "mgmt0"))
    made.env["b"]["GLOO_SOCKET_IFNAME"] = "mgmt0"


@fault("gloo", "host names resolve to loopback", "hostname-resolves-to-loopback", quick=True)
@fault("nodes", "host names resolve to loopback", "hostname-resolves-to-loopback")
def name_is_loopback(made: Bench) -> None:
    for host in ("a", "b"):
        table = made.hosts.folder / f"{host}.hosts"
        table.write_text(re.sub(rf"^\S+ {host}$", f"127.0.1.1 {host}", table.read_text(), flags=re.M))
        made.env[host]["GLOO_SOCKET_IFNAME"] = None
        if made.shape == "gloo":
            made.master[host] = made.hosts["a"].address


@fault("gloo", "one-way block of the mesh, b to a", "bootstrap-blocked-firewall", stages=MESH, quick=True)
@fault("nodes", "one-way block of the mesh, b to a", "bootstrap-blocked-firewall", stages=MESH)
def mesh_b_to_a(made: Bench) -> None:
    made.before.append(firewall("b", HIGH))


@fault("gloo", "one-way block of the mesh, a to b (harmless: only b dials)", HEALTHY)
@fault(
    "nodes",
    "one-way block a to b: the message queues",
    "bootstrap-blocked-firewall",
    stages=("message-queues", *MESH),
    quick=True,
)
def mesh_a_to_b(made: Bench) -> None:
    made.before.append(firewall("a", f'oifname "eth0" {HIGH}'))


@fault("nodes", "VLLM_HOST_IP=127.0.0.1 on a", "node-ip-wrong-interface", node="a", rank=0)
def host_ip_a(made: Bench) -> None:
    made.env["a"]["VLLM_HOST_IP"] = "127.0.0.1"


@fault("nodes", "VLLM_HOST_IP=127.0.0.1 on b", "node-ip-wrong-interface", node="b", rank=1, quick=True)
def host_ip_b(made: Bench) -> None:
    made.env["b"]["VLLM_HOST_IP"] = "127.0.0.1"


@fault("nodes", "VLLM_HOST_IP of another machine on a", "node-ip-wrong-interface", node="a")
def host_ip_foreign(made: Bench) -> None:
    made.env["a"]["VLLM_HOST_IP"] = "172.31.9.9"


@fault("gloo", "rank 1 stopped (SIGSTOP) in its loop", "rank-stopped", node="b", rank=1, quick=True)
def stopped(made: Bench) -> None:
    made.env["a"]["STEPS"] = made.env["b"]["STEPS"] = "400"
    made.acts.append(signalled("b", "rank 1 has loaded", signal.SIGSTOP, 3))


@fault(
    "nodes",
    "rank 1 stopped (SIGSTOP) while it loads",
    "rank-stopped",
    node="b",
    rank=1,
    stages=("load-weights",),
    name="stopped-in-load",
    quick=True,
)
@fault(
    "tp2",
    "rank 1 stopped (SIGSTOP) while it loads",
    "rank-stopped",
    rank=1,
    stages=("load-weights",),
    name="stopped-in-load",
)
def stopped_in_load(made: Bench) -> None:
    where = "b" if made.shape == "nodes" else "a"
    made.acts.append(
        signalled(
            where,
            LOADING if made.shape == "nodes" else r"\(Worker_TP1 pid=(\d+)\)[^\n]*Starting to load model",
            signal.SIGSTOP,
        )
    )


@fault(
    "tp2",
    "rank 1 stopped (SIGSTOP) while it serves",
    "rank-stopped",
    rank=1,
    stages=("ready", "serving", "compile", "profile"),
    name="stopped-in-serving",
    quick=True,
)
def stopped_in_serving(made: Bench) -> None:
    made.acts.append(signalled("a", r"Application startup complete", signal.SIGSTOP))
    made.acts[-1] = _stop_last_worker


def _stop_last_worker(made: Bench) -> None:
    while "Supported tasks" not in made.text("a") and "Starting vLLM server" not in made.text("a"):
        if made.over:
            return
        time.sleep(0.01)
    found = re.findall(r"\(Worker_TP1 pid=(\d+)\)", made.text("a"))
    os.kill(int(found[-1]), signal.SIGSTOP)
    made.acted_at = time.time()


@fault("gloo", "rank 1 killed (SIGKILL)", "rank-died", node="b", rank=1, quick=True)
def killed(made: Bench) -> None:
    made.env["a"]["STEPS"] = made.env["b"]["STEPS"] = "400"
    made.acts.append(signalled("b", "rank 1 has loaded", signal.SIGKILL, 3))


@fault("nodes", "rank 1 killed (SIGKILL) while it loads", "rank-died", node="b", rank=1, name="killed-in-load")
@fault("tp2", "rank 1 killed (SIGKILL) while it loads", "rank-died", rank=1, name="killed-in-load", quick=True)
def killed_in_load(made: Bench) -> None:
    where = "b" if made.shape == "nodes" else "a"
    made.acts.append(
        signalled(
            where,
            LOADING if made.shape == "nodes" else r"\(Worker_TP1 pid=(\d+)\)[^\n]*Starting to load model",
            signal.SIGKILL,
        )
    )


@fault(
    "gloo", "rank 1 ended by the kernel: its cgroup has no more memory", "host-memory-oom", node="b", rank=1, quick=True
)
def out_of_memory(made: Bench) -> None:
    made.env["b"]["FAULT"] = "memory"
    made.acts.append(_confine)


def _confine(made: Bench) -> None:
    """Puts rank 1 into a cgroup that lets it take 200 MiB more than it has."""
    while "rank 1 has met the others" not in made.text("b"):
        if made.over:
            return
        time.sleep(0.01)
    pid = job_pid(made, "b")
    first = Path("/sys/fs/cgroup/memory")
    folder, limit = (first if first.is_dir() else Path("/sys/fs/cgroup")) / f"ncdiag-lab-{pid}", 200 << 20
    folder.mkdir()
    try:
        (folder / ("memory.limit_in_bytes" if first.is_dir() else "memory.max")).write_text(str(limit))
        (folder / "cgroup.procs").write_text(str(pid))
        while Path(f"/proc/{pid}/exe").exists() and not made.over:
            time.sleep(0.05)
        made.acted_at = time.time()
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """A cgroup can be removed once nothing is in it."""
    for _ in range(100):
        try:
            return folder.rmdir()
        except OSError:
            time.sleep(0.1)


@fault(
    "gloo",
    "an exception in rank 1",
    "engine-exception",
    "tokenizer-config-error",
    "model-config-invalid",
    node="b",
    rank=1,
    quick=True,
)
def exception(made: Bench) -> None:
    made.env["b"]["FAULT"] = "raise"


@fault(
    "gloo",
    "rank 1 reads a file that never answers",
    "rank-stuck-outside-collective",
    "storage-slow",
    node="b",
    rank=1,
    quick=True,
)
def read_stalls(made: Bench) -> None:
    path = made.hosts.folder / "shard"
    os.mkfifo(path)
    made.env["b"] |= {"FAULT": "fifo", "FAULT_FILE": str(path)}


@fault("gloo", "rank 1 loads slowly, but it does (30 s)", SLOW, quick=True)
def slow_load(made: Bench) -> None:
    made.env["b"]["FAULT"] = "slow"


@fault("tp2", "a long compile, with empty caches", SLOW)
def compile_takes_long(made: Bench) -> None:
    made.eager = False
    made.timeout_s = 180.0
    made.env["a"] |= {
        "VLLM_CACHE_ROOT": str(made.hosts.folder / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(made.hosts.folder / "inductor"),
    }


@fault("nodes", "model path missing on b", "model-path-missing", node="b", quick=True)
def model_missing(made: Bench) -> None:
    made.models["b"] = "/srv/models/not-there"


def _copy(made: Bench, name: str) -> Path:
    assert made.model is not None
    folder = made.hosts.folder / name
    shutil.copytree(made.model, folder)
    return folder


@fault("nodes", "weights missing on b", "model-path-missing", "weights-corrupt", node="b", rank=1)
def weights_missing(made: Bench) -> None:
    folder = _copy(made, "no-weights")
    for path in folder.glob("*.safetensors"):
        path.unlink()
    made.models["b"] = str(folder)


@fault("nodes", "corrupt shard on b", "weights-corrupt", node="b", rank=1)
@fault("tp2", "corrupt shard", "weights-corrupt", quick=True)
def shard_corrupt(made: Bench) -> None:
    folder = _copy(made, "cut")
    for path in folder.glob("*.safetensors"):
        os.truncate(path, path.stat().st_size // 2)
    made.models["a" if made.shape == "tp2" else "b"] = str(folder)


@fault(
    "tp2",
    "damaged tokenizer",
    "tokenizer-config-error",
    "model-path-missing",
    "weights-corrupt",
    "engine-exception",
    "model-config-invalid",
)
def tokenizer_damaged(made: Bench) -> None:
    folder = _copy(made, "tokenizer")
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": ')
    made.models["a"] = str(folder)


@fault(
    "nodes",
    "--max-model-len and --block-size differ on b",
    "version-mismatch",
    "parallel-size-mismatch",
    "rank-layout-wrong",
    "engine-exception",
    "model-path-missing",
)
def config_differs(made: Bench) -> None:
    made.args["b"] = ["--max-model-len", "256", "--block-size", "64"]


@fault("tp2", "/dev/shm of 64 KiB", "shm-too-small", node="a", quick=True)
def shm_small(made: Bench) -> None:
    made.before.append(lambda bench: bench.hosts["a"].mount("mount -t tmpfs -o size=64k,mode=1777 tmpfs /dev/shm"))


def _take_port(port: int) -> Callable[[Bench], None]:
    """Something else on `a` listens on the port."""
    script = f"import socket, time; s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('0.0.0.0', {port})); s.listen(); time.sleep(900)"

    def apply(made: Bench) -> None:
        made.hosts["a"].start("python3", "-c", script)
        time.sleep(0.5)

    return apply


@fault("nodes", "master port in use on a", "port-in-use", node="a")
@fault("gloo", "master port in use on a", "port-in-use", node="a", quick=True)
def port_in_use(made: Bench) -> None:
    made.before.append(_take_port(PORT))


@fault("tp2", "API port in use", "port-in-use", node="a")
def api_port_in_use(made: Bench) -> None:
    made.before.append(_take_port(SERVE))


@fault("ray", "second Ray node missing", "ray-resources-infeasible", stages=("ray-placement",), quick=True)
def ray_too_few(made: Bench) -> None:
    made.skip.add("b")


@fault("ray", "Ray head not reachable", "ray-gcs-unreachable", quick=True)
def ray_head_gone(made: Bench) -> None:
    made.env["a"]["RAY_ADDRESS"] = f"{made.hosts['b'].address}:6399"
    made.skip |= {"a", "b"}


@fault("ray", "high ports blocked b to a", "bootstrap-blocked-firewall", node="b", quick=True)
def ray_ports(made: Bench) -> None:
    made.before.append(firewall("b", f'oifname "eth0" {HIGH}'))


@fault("ray", "the plug-in is missing on b", "version-mismatch", "engine-exception", "ray-driver-without-gpu", node="b")
def ray_plugin_missing(made: Bench) -> None:
    made.env["b"]["PYTHONPATH"] = None


@fault("ray", "worker node lost while it loads", "ray-node-lost", "rank-died", node="b")
def ray_node_lost(made: Bench) -> None:
    made.acts.append(_kill_ray_worker)


def _kill_ray_worker(made: Bench) -> None:
    while not (
        found := re.search(
            r"\(RayWorkerProc pid=(\d+), ip=10\.77\.0\.2\)[^\n]*(?:Starting to load|distributed_init)", made.text("a")
        )
    ):
        if made.over:
            return
        time.sleep(0.02)
    os.kill(int(found[1]), signal.SIGKILL)
    made.acted_at = time.time()


@fault("ray", "rank on b stopped (SIGSTOP)", "rank-stopped", node="b", quick=True)
def ray_stopped(made: Bench) -> None:
    made.acts.append(_stop_ray_worker)


def _stop_ray_worker(made: Bench) -> None:
    while not (found := re.search(r"\(RayWorkerProc pid=(\d+), ip=10\.77\.0\.2\)", made.text("a"))):
        if made.over:
            return
        time.sleep(0.02)
    time.sleep(1.0)
    os.kill(int(found[1]), signal.SIGSTOP)
    made.acted_at = time.time()


@fault("gloo", "DNS that never answers (it goes on by itself)", SLOW)
def dns_silent(made: Bench) -> None:
    made.before.append(firewall("a", "udp dport 53 drop"))
    for host in ("a", "b"):
        made.hosts[host].mount(
            "umount /etc/nsswitch.conf; echo 'nameserver 10.77.0.77' > /tmp/ray/resolv; [ ! -e /etc/resolv.conf ] || mount --bind /tmp/ray/resolv /etc/resolv.conf; umount /etc/hosts"
        )
