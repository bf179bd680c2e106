"""What the node is: its interpreter, GPUs, memory, and who uses them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import Any, Dict, List, Optional


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
    try:
        return dict(json.loads(data))
    except ValueError:  # it was ended (out of memory), or torch cannot be loaded
        return {"error": "the node's facts could not be read"}


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
    with contextlib.suppress(OSError, KeyError, ValueError, IndexError):
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
