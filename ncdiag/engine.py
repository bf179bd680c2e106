"""Finds the engine's own interpreter and the packages beside it, without importing any. Travels to nodes.

ncdiag may live in another environment than the engine it looks at: an interpreter in another virtual environment, or a
process in a container (its files are then below /proc/PID/root).
"""

from __future__ import annotations

import posixpath
import re
import sys
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ncdiag.host import Absent, Host, HostError

ENGINE_COMMAND = re.compile(
    r"VLLM::|vllm[ /]serve|(?:^|/)vllm\0|vllm\.entrypoints|ray::RayWorker(?:Proc|Wrapper)|sglang\.launch_server"
)
"""In a command line with NULs between its arguments: a process of an engine."""

_METADATA_LIMIT = 1 << 20


@dataclass(frozen=True)
class Engine:
    """An interpreter and where its packages lie."""

    python: str
    """Path of the interpreter as the engine sees it."""
    found_by: str
    """`--python`, `--pid`, `running process 123`, `vllm in PATH`, `VIRTUAL_ENV`, `CONDA_PREFIX`, `ncdiag's own interpreter`."""
    root: str = ""
    """Prefix for every path: `/proc/123/root` for a process in a container, else empty."""
    pid: Optional[int] = None


def processes(host: Host) -> Iterator[Tuple[int, str]]:
    """`(pid, command line with NULs)` of every process that can be read."""
    for name in host.names("/proc"):
        if name.isdecimal():
            try:
                line = host.read("/proc/%s/cmdline" % name)
            except HostError:
                continue
            if line:
                yield int(name), line


def in_our_network(host: Host, pid: int) -> bool:
    """Not that of a container: a node of Kubernetes sees the raylets of its pods, whose addresses are none of its own."""
    if host.recorded:
        return True
    try:
        return host.link("/proc/%d/ns/net" % pid) == host.link(
            "/proc/%d/ns/net" % host.pid if host.pid else "/proc/self/ns/net"
        )
    except HostError:
        return False


def find(host: Host) -> Optional[Engine]:
    """The engine's interpreter: as told, else of a running engine, else of `vllm` in PATH, of the active environment, ncdiag's own; None when there is none."""
    if host.python:
        return Engine(host.python, "--python")
    if host.pid is not None:
        return _of_process(host, host.pid, "--pid")
    for pid, line in processes(host):
        if ENGINE_COMMAND.search(line):
            engine = _of_process(host, pid, "running process %d" % pid)
            if engine is not None:
                return engine
    return in_path(host)


def must_find(host: Host) -> Engine:
    """The same; where there is none, HostError says why, and what to give instead."""
    found = find(host)
    if found is not None:
        return found
    if host.pid is None:
        raise HostError(
            "engine", "no interpreter of an engine was found; name one with --python or a process with --pid"
        )
    program = host.link("/proc/%d/exe" % host.pid)
    if "python" in posixpath.basename(program):
        reason = "its interpreter %s cannot be read; name one with --python" % program
    else:
        reason = (
            "it runs %s, which is no Python: give the pid of a process of the engine (ps -ef | grep -i vllm)" % program
        )
    raise HostError("process %d" % host.pid, reason)


def _of_process(host: Host, pid: int, found_by: str) -> Optional[Engine]:
    try:
        python = host.link("/proc/%d/exe" % pid)
        arguments = host.read("/proc/%d/cmdline" % pid).split("\0")
        environment = dict(
            part.split("=", 1) for part in host.read("/proc/%d/environ" % pid).split("\0") if "=" in part
        )
    except HostError:
        return None
    root = "" if _same_root(host, pid) else "/proc/%d/root" % pid
    # exe is the resolved binary: a virtual environment shows only in the path it was called by, or in VIRTUAL_ENV
    for candidate in (arguments[0], environment.get("VIRTUAL_ENV", "") + "/bin/python", python):
        if candidate.startswith("/") and "python" in posixpath.basename(candidate) and host.exists(root + candidate):
            return Engine(candidate, found_by, root, pid)
    return None


def _same_root(host: Host, pid: int) -> bool:
    try:
        return host.link("/proc/%d/ns/mnt" % pid) == host.link("/proc/self/ns/mnt")
    except HostError:
        return True


def in_path(host: Host) -> Optional[Engine]:
    """Without a running engine: of `vllm` in PATH, of the active environment, ncdiag's own."""
    try:
        environment = host.environ()
    except HostError:
        environment = {}
    folders = [
        folder
        for folder in environment.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":")
        if folder.startswith("/")
    ]
    for folder in folders:
        interpreter = shebang(host, folder + "/vllm")
        if interpreter:
            return Engine(interpreter, "vllm in PATH")
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environment.get(variable)
        if prefix and host.exists(prefix + "/bin/python"):
            return Engine(prefix + "/bin/python", variable)
    try:
        return Engine(host.ask("own-interpreter", lambda: sys.executable), "ncdiag's own interpreter")
    except HostError:
        return None


def shebang(host: Host, path: str) -> Optional[str]:
    """The interpreter in the first line of a Python script; None where there is none."""
    try:
        first = host.head(path, 512).split(b"\n", 1)[0].decode("utf-8", "replace")
    except HostError:
        return None
    match = re.match(r"#!\s*(/\S*python[\d.]*)\s*$", first)
    return match.group(1) if match else None


def site_packages(host: Host, engine: Engine) -> List[str]:
    """Folders of installed packages that the interpreter looks into, in its order."""
    prefix = posixpath.dirname(posixpath.dirname(engine.python))
    prefixes = [prefix]
    try:
        config = host.read(engine.root + prefix + "/pyvenv.cfg")
    except HostError:
        config = ""
        try:
            prefixes.append(
                posixpath.dirname(posixpath.dirname(host.real(engine.root + engine.python)[len(engine.root) :]))
            )
        except HostError:
            pass
    home = re.search(r"^home\s*=\s*(.+?)\s*$", config, re.M)
    if home and re.search(r"^include-system-site-packages\s*=\s*true", config, re.M | re.I):
        prefixes.append(posixpath.dirname(home.group(1)))
    found: List[str] = []
    for base in prefixes:
        for library in ("lib", "lib64", "local/lib"):
            for name in _names(host, engine.root + base + "/" + library):
                if re.match(r"python3(\.\d+)?$", name):
                    found += [
                        base + "/" + library + "/" + name + "/" + kind for kind in ("site-packages", "dist-packages")
                    ]
    real: Dict[str, str] = {}
    for folder in found:
        try:
            real.setdefault(host.real(engine.root + folder), folder)
        except HostError:
            continue
    return list(real.values())


def _names(host: Host, path: str) -> List[str]:
    try:
        return host.names(path)
    except HostError:
        return []


def distributions(host: Host, engine: Engine, folders: List[str]) -> Dict[str, str]:
    """Normalised name (`flash-attn`) -> path of its metadata folder, the first on the interpreter's path winning."""
    found: Dict[str, str] = {}
    for folder in folders:
        for name in _names(host, engine.root + folder):
            match = re.match(r"([A-Za-z0-9][A-Za-z0-9._]*?)-[^-]*(?:-py[\d.]+)?\.(?:dist-info|egg-info)$", name)
            if match:
                found.setdefault(re.sub(r"[-_.]+", "-", match.group(1)).lower(), folder + "/" + name)
    return found


def metadata(host: Host, engine: Engine, path: str) -> Dict[str, Any]:
    """`{"version", "requires": [..], "requires_python"}` of one metadata folder. Raises HostError."""
    for name in ("METADATA", "PKG-INFO"):
        if host.exists(engine.root + path + "/" + name):
            text = host.read(engine.root + path + "/" + name, _METADATA_LIMIT)
            break
    else:
        text = host.read(engine.root + path, _METADATA_LIMIT)
    head = text.split("\n\n", 1)[0]
    version = re.search(r"^Version:\s*(\S+)", head, re.M)
    python = re.search(r"^Requires-Python:\s*(.+?)\s*$", head, re.M)
    return {
        "version": version.group(1) if version else None,
        "requires": re.findall(r"^Requires-Dist:\s*(.+?)\s*$", head, re.M),
        "requires_python": python.group(1) if python else None,
    }


def python_version(host: Host, engine: Engine, folders: List[str]) -> Optional[str]:
    """`3.11.7` from pyvenv.cfg, else `3.11` from the name of the packages' folder or the interpreter."""
    prefix = posixpath.dirname(posixpath.dirname(engine.python))
    try:
        match = re.search(
            r"^version(?:_info)?\s*=\s*(\d+\.\d+(?:\.\d+)?)", host.read(engine.root + prefix + "/pyvenv.cfg"), re.M
        )
        if match:
            return match.group(1)
    except HostError:
        pass
    for text in (*folders, engine.python):
        match = re.search(r"python(3\.\d+)", text)
        if match:
            return match.group(1)
    return None


def absent(host: Host, path: str) -> bool:
    """Whether a path that a variable names is certainly not there for the process under look."""
    root = "/proc/%d/root" % host.pid if host.pid is not None and not host.recorded else ""
    try:
        host.stat(root + path)
    except Absent:
        return host.sought(root + path)
    except HostError:
        pass
    return False
