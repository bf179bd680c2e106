"""Stands on a node during a bandwidth run: forks one process a rank, passes on what they say, ends them. Shipped as source (Python 3.8).

Orders come as one JSON object a line on standard input; answers go to standard output, one a line, each behind `MARK`. Its standard input is
its leash: when that ends, or nothing has come for LEASH_S, all ranks are killed and the agent ends. A rank that loses its agent is killed by
the kernel. So nothing is left behind, however the other side ends.

Orders: `{"do": "run", "job", "ranks": [{…}], "limit_s"}`, `{"do": "store", "job", "port"}`, `{"do": "kill", "job"}`, `{"do": "beat"}`.
Answers: `{"event": "hello", …facts}`, whatever a rank emits with `job` and `rank`, `{"event": "ended", "job", "rank", "status", "stage", "log"}`.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import glob
import ipaddress
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
import zlib
from typing import Any, Dict, List, Optional

MARK = "ncdiag-bandwidth "
LEASH_S = 90.0
LOG_BYTES = 1 << 20
SIOCGIFADDR = 0x8915
PR_SET_PDEATHSIG = 1


def say(message: Dict[str, Any]) -> None:
    data = (MARK + json.dumps(message) + "\n").encode()
    while data:
        data = data[os.write(1, data) :]


class Rank:
    """One forked rank, seen from the agent."""

    def __init__(self, job: str, spec: Dict[str, Any], limit_s: float, worker: Any) -> None:
        self.job, self.rank, self.stage = job, int(spec["rank"]), "starting"
        self.deadline = time.monotonic() + limit_s
        self.log, self.dropped = b"", 0
        self.partial = b""
        self.late = False
        self.topology = -1
        dumper = spec.pop("topology", None)
        if (
            dumper is not None
        ):  # on every rank of the node: from 2.24 on they exchange what they see once more for the dump, and wait for all
            path = os.devnull
            if dumper == self.rank:
                self.topology = os.memfd_create("topology", 0)  # no file with a name
                path = "/proc/self/fd/%d" % self.topology
            spec["env"].update(NCCL_TOPO_DUMP_FILE=path, NCCL_TOPO_DUMP_FILE_RANK=str(dumper))
        events, tell = os.pipe()
        output, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(events)
            os.close(output)
            _be_rank(spec, worker, tell, write)
        os.close(tell)
        os.close(write)
        self.events, self.output = events, output

    def descriptors(self) -> List[int]:
        return [number for number in (self.events, self.output) if number >= 0]

    def read(self, descriptor: int) -> None:
        data = os.read(descriptor, 1 << 16)
        if not data:
            os.close(descriptor)
            if descriptor == self.events:
                self.events = -1
            else:
                self.output = -1
        elif descriptor == self.output:
            room = LOG_BYTES - len(self.log)
            self.log += data[:room]
            self.dropped += max(len(data) - room, 0)
        else:
            *lines, self.partial = (self.partial + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                self.stage = message.get("stage", self.stage)
                say({**message, "job": self.job, "rank": self.rank})

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def finish(self) -> None:
        _, state = os.waitpid(self.pid, 0)
        status = -os.WTERMSIG(state) if os.WIFSIGNALED(state) else os.WEXITSTATUS(state)
        if self.topology >= 0:
            os.lseek(self.topology, 0, os.SEEK_SET)
            with os.fdopen(self.topology, "rb") as file:
                xml = file.read(1 << 21).decode("utf-8", "replace")
            say({"event": "topology", "job": self.job, "rank": self.rank, "xml": xml})
        packed = base64.b64encode(zlib.compress(self.log)).decode()
        say(
            {
                "event": "ended",
                "job": self.job,
                "rank": self.rank,
                "status": status,
                "stage": self.stage,
                "late": self.late,
                "log": packed,
                "log_dropped": self.dropped,
            }
        )


def _be_rank(spec: Dict[str, Any], worker: Any, events: int, output: int) -> None:
    """In the forked process: never returns."""
    status = 1
    try:
        parent = os.getppid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if os.getppid() != parent:
            os._exit(1)
        for name, value in spec.get("env", {}).items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

        def emit(message: Dict[str, Any]) -> None:
            os.write(events, json.dumps(message).encode() + b"\n")

        worker.run(spec, emit)
        status = 0
    except BaseException as error:  # the fence: whatever a rank raises becomes data
        with contextlib.suppress(OSError):
            traceback.print_exc()
            sys.stderr.flush()
            text = "%s: %s" % (type(error).__name__, str(error).strip()[:2000])
            os.write(events, json.dumps({"event": "error", "text": text}).encode() + b"\n")
    finally:
        os._exit(status)


# --- what the node is -------------------------------------------------------------------------------------------------------------------------


def facts() -> Dict[str, Any]:
    """Asked in a process of its own, so that the ranks are forked from one that has not touched CUDA."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            data = json.dumps(_facts()).encode()
            while data:
                data = data[os.write(writer, data) :]
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    return json.loads(data) if data else {"error": "the node's facts could not be read"}


def _facts() -> Dict[str, Any]:
    import torch

    found: Dict[str, Any] = {
        "python": sys.executable,
        "torch": torch.__version__,
        "cuda": [],
        "nccl": None,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_free": memory_free(),
    }
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            found["cuda"].append(
                {
                    "name": properties.name,
                    "uuid": str(getattr(properties, "uuid", "")),
                    "capability": [properties.major, properties.minor],
                    "memory": properties.total_memory,
                }
            )
        with contextlib.suppress(Exception):
            found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return found


def memory_free() -> Optional[int]:
    """Bytes that new processes may take: MemAvailable of /proc/meminfo, less where a cgroup (memory.max) allows less beside what it uses for
    more than its cache of files (memory.current, `file` of memory.stat)."""
    found = []
    with contextlib.suppress(OSError, KeyError):
        found.append(_table("/proc/meminfo")["MemAvailable:"] << 10)
    with contextlib.suppress(OSError, KeyError, ValueError):
        limit, used = (int(_words("/sys/fs/cgroup/memory." + name)[0]) for name in ("max", "current"))
        found.append(max(limit - used + _table("/sys/fs/cgroup/memory.stat")["file"], 0))
    return min(found) if found else None  # a limit of "max" is no number: there is none


def _words(path: str) -> List[str]:
    with open(path) as file:
        return file.read().split()


def _table(path: str) -> Dict[str, int]:
    with open(path) as file:
        return {words[0]: int(words[1]) for words in map(str.split, file) if len(words) > 1 and words[1].isdecimal()}


def gpu_users() -> Dict[str, Any]:
    """Who holds GPU memory: `{"users": [{"pid", "uuid", "user", "command", "mib"}], "used_mib": {uuid: MiB}, "free_mib": {uuid: MiB}}`,
    or `error`."""
    try:
        apps = _smi("--query-compute-apps=gpu_uuid,pid,used_memory,process_name")
        memory = [line for line in _smi("--query-gpu=uuid,memory.used,memory.free") if len(line) == 3]
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": str(error)[:300]}
    users = []
    for parts in apps:
        if len(parts) >= 4:
            users.append(
                {
                    "uuid": parts[0],
                    "pid": int(_number(parts[1])),
                    "mib": _number(parts[2]),
                    **_process(parts[1], parts[3]),
                }
            )
    used, free = ({line[0]: _number(line[column]) for line in memory} for column in (1, 2))
    return {"users": users, "used_mib": used, "free_mib": free}


def _smi(query: str) -> List[List[str]]:
    out = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader,nounits"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=20,
        check=True,
    )
    return [
        [part.strip() for part in line.split(",", 3)]
        for line in out.stdout.decode("utf-8", "replace").splitlines()
        if line.strip()
    ]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _process(pid: str, name: str) -> Dict[str, str]:
    import pwd

    found = {"user": "", "command": name}
    with contextlib.suppress(OSError, KeyError):
        found["user"] = pwd.getpwuid(os.stat("/proc/" + pid).st_uid).pw_name
        with open("/proc/%s/cmdline" % pid, "rb") as file:
            found["command"] = file.read(300).replace(b"\0", b" ").decode("utf-8", "replace").strip() or name
    return found


def addresses() -> Dict[str, str]:
    """Interface -> its IPv4 address."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def link(name: str) -> Dict[str, Any]:
    """Speed in Mbit/s and MTU of an interface (/sys/class/net/NAME/{speed,mtu}), and whether there is a device behind it at all."""
    found: Dict[str, Any] = {"virtual": not os.path.exists("/sys/class/net/%s/device" % name)}
    for key in ("speed", "mtu"):
        try:
            with open("/sys/class/net/%s/%s" % (name, key)) as file:
                found[key] = int(file.read())
        except (OSError, ValueError):
            found[key] = None
    return found


def hcas() -> List[str]:
    """RDMA devices with an active port (/sys/class/infiniband/DEVICE/ports/PORT/state)."""
    found = []
    for path in sorted(glob.glob("/sys/class/infiniband/*/ports/*/state")):
        with contextlib.suppress(OSError), open(path) as file:
            name = path.split("/")[4]
            if "ACTIVE" in file.read() and name not in found:
                found.append(name)
    return found


def own_address(interfaces: Dict[str, str]) -> str:
    """The address by which others most likely reach this node: what it was told, else where its SSH session came in (sshd behind a pipe says
    UNKNOWN, a tunnel ends at the loopback), else that of its name, else its first."""
    if os.environ.get("NCDIAG_ADDRESS"):
        return os.environ["NCDIAG_ADDRESS"]
    parts = os.environ.get("SSH_CONNECTION", "").split()
    if len(parts) == 4 and _is_reachable(parts[2]):
        return parts[2]
    with contextlib.suppress(OSError):
        address = socket.gethostbyname(socket.gethostname())
        if not address.startswith("127."):
            return address
    return next((address for address in interfaces.values() if not address.startswith("127.")), "127.0.0.1")


def _is_reachable(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (
        address.is_loopback or address.is_unspecified or "%" in text
    )  # a scope means something on its own host only


def way_to(host: str, interfaces: Dict[str, str]) -> Optional[str]:
    """The interface that leads to `host`."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            local = probe.getsockname()[0]
    except OSError:
        return None
    return next((name for name, address in interfaces.items() if address == local), None)


# --- the loop ---------------------------------------------------------------------------------------------------------------------------------


class Agent:
    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.interfaces = addresses()
        self.ranks: List[Rank] = []
        self.held: Dict[str, Dict[str, Any]] = {}
        """Jobs whose store is not known yet."""
        self.heard = time.monotonic()
        self.partial = b""

    def hello(self) -> None:
        own = own_address(self.interfaces)
        links = {name: link(name) for name in self.interfaces}
        say(
            {
                "event": "hello",
                "hostname": socket.gethostname(),
                "interfaces": self.interfaces,
                "links": links,
                "hcas": hcas(),
                "address": own,
                **facts(),
                "gpus": gpu_users(),
            }
        )

    def order(self, order: Dict[str, Any]) -> None:
        if order["do"] == "run":
            self._start(order)
        elif order["do"] == "store" and order["job"] in self.held:
            held = self.held.pop(order["job"])
            for spec in held["ranks"]:
                spec["store"]["port"] = order["port"]
            self._fork(held)
        elif order["do"] == "kill":
            self.held.pop(order["job"], None)
            for rank in self.ranks:
                if rank.job == order["job"]:
                    rank.kill()

    def _start(self, order: Dict[str, Any]) -> None:
        for spec in order["ranks"]:
            interface = way_to(spec["store"]["host"], self.interfaces)
            if interface and "GLOO_SOCKET_IFNAME" not in {**os.environ, **spec["env"]}:
                spec["env"]["GLOO_SOCKET_IFNAME"] = interface
        first = [spec for spec in order["ranks"] if spec["rank"] == 0]
        others = [spec for spec in order["ranks"] if spec["rank"] != 0]
        if first:
            self._fork({**order, "ranks": first})
        if others:
            self.held[order["job"]] = {**order, "ranks": others}

    def _fork(self, order: Dict[str, Any]) -> None:
        for spec in order["ranks"]:
            self.ranks.append(Rank(order["job"], spec, float(order["limit_s"]), self.worker))

    def look(self) -> bool:
        """One turn; False when it is over."""
        wanted = {number: rank for rank in self.ranks for number in rank.descriptors()}
        ready = select.select([0, *wanted], [], [], 0.5)[0]
        for number in ready:
            if number != 0:
                wanted[number].read(number)
        if 0 in ready and not self._listen():
            return False
        now = time.monotonic()
        for rank in self.ranks:
            if now > rank.deadline and not rank.late:
                rank.late = True
                rank.kill()
        for rank in [rank for rank in self.ranks if not rank.descriptors()]:
            rank.finish()
            self.ranks.remove(rank)
        return now - self.heard < LEASH_S

    def _listen(self) -> bool:
        data = os.read(0, 1 << 20)
        if not data:
            return False
        self.heard = time.monotonic()
        *lines, self.partial = (self.partial + data).split(b"\n")
        for line in lines:
            if line.strip():
                self.order(json.loads(line))
        return True

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()
        for rank in self.ranks:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(rank.pid, 0)


def main(worker: Any) -> None:
    """Serves until the leash is gone."""
    import torch  # noqa: F401  loaded once, here; the ranks are forked with it, and CUDA is touched in them only

    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the word comes over standard input

    def end(*_: Any) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    agent = Agent(worker)
    try:
        agent.hello()
        while agent.look():
            pass
    except OSError:
        pass  # nobody listens any more
    finally:
        agent.close()
