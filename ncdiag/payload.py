"""Packs what travels: probes and what they import, as one zip that `python3 -S -I` (3.8 or newer) runs with nothing installed."""

from __future__ import annotations

import ast
import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import ncdiag

ROOT = os.path.dirname(os.path.abspath(ncdiag.__file__))
BEGIN = "ncdiag-payload-begin"
END = "ncdiag-payload-end"
LINE = 1000
"""Characters in a line of the payload's output: launchers that label or merge lines (srun, mpirun) cut longer ones."""

_HEAD = """\
import json, os, pkgutil, sys
request = json.loads(pkgutil.get_data("ncdiag", "request.json").decode("utf-8"))
"""
_COLLECT = """\
from dataclasses import asdict
from ncdiag import registry
from ncdiag.collect import collect
from ncdiag.host import Host
probes = registry.load()
wanted = request.get("probes")
chosen = [probe for name, probe in probes.items() if probe.collect and (wanted is None or name in wanted)]
host = Host(python=request.get("python"), pid=request.get("pid"), environment=request.get("environment"), model=request.get("model"))
node = collect(host, chosen, budget_s=request.get("budget_s", 60.0))
node.errors.update(probes.broken)
answer = asdict(node)
"""
_TAIL = f"""\
text = json.dumps(answer)
lines = [text[start:start + {LINE}] for start in range(0, len(text), {LINE})]
sys.stdout.write("\\n{BEGIN} %d\\n%s\\n{END}\\n" % (len(text), "\\n".join(lines)))
sys.stdout.flush()
os._exit(0)
"""
"""Ends with os._exit: a thread stuck in the kernel must not keep the node's process alive."""


def modules(start: Sequence[str]) -> dict[str, str]:
    """Module name -> file, of `start` and of every `ncdiag` module they import, directly or not."""
    found: dict[str, str] = {}
    todo = list(start)
    while todo:
        name = todo.pop()
        path = _file_of(name)
        if name in found or path is None:
            continue
        found[name] = path
        todo.extend(_imports(path, name))
        if "." in name:
            todo.append(name.rpartition(".")[0])
    return found


def _file_of(name: str) -> str | None:
    base = os.path.join(ROOT, *name.split(".")[1:])
    for path in (base + ".py", os.path.join(base, "__init__.py")):
        if os.path.isfile(path):
            return path
    return None


def _imports(path: str, module: str) -> set[str]:
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name for name in names if name.split(".")[0] == "ncdiag"}


def probe_files(folders: Sequence[str] = ()) -> dict[str, str]:
    """Archive path -> file, of the package's probes and of the users' own."""
    files = {}
    for folder in (os.path.join(ROOT, "probes"), *folders):
        for name in sorted(os.listdir(folder)):
            if name.endswith(".py"):
                files["ncdiag/probes/" + name] = os.path.join(folder, name)
    return files


def _wanted(probes: dict[str, str], ids: Sequence[str] | None) -> dict[str, str]:
    """Those with these ids and what they import of each other; all without ids. Every file more is compiled on every node."""
    if ids is None:
        return probes
    keep = {"__init__"}
    todo = [name.replace("-", "_") for name in ids]
    while todo:
        name = todo.pop()
        path = probes.get(f"ncdiag/probes/{name}.py")
        if name not in keep and path is not None:
            keep.add(name)
            todo += [found.rpartition(".")[2] for found in _imports(path, name) if found.startswith("ncdiag.probes.")]
    return {
        archived: path for archived, path in probes.items() if archived[len("ncdiag/probes/") : -len(".py")] in keep
    }


def pack(folders: Sequence[str] = (), request: Mapping[str, Any] | None = None) -> bytes:
    """The zip; the same input gives the same bytes.

    `request` may hold `probes` (ids, all when missing), `python`, `pid`, `environment`, `model` and `budget_s`.
    """
    probes = _wanted(probe_files(folders), (request or {}).get("probes"))
    start = ["ncdiag", "ncdiag.collect", "ncdiag.registry", "ncdiag.host"]
    for path in probes.values():
        start.extend(_imports(path, "ncdiag.probes"))
    files = {
        os.path.relpath(path, os.path.dirname(ROOT)): path
        for name, path in modules(start).items()
        if not name.startswith("ncdiag.probes")
    }
    files.update(probes)
    return _zip(files, _COLLECT, request)


def pack_call(module: str, request: Mapping[str, Any]) -> bytes:
    """The zip that prints what `module.run(request)` returns, instead of facts."""
    files = {os.path.relpath(path, os.path.dirname(ROOT)): path for path in modules(["ncdiag", module]).values()}
    return _zip(files, f"from {module} import run\nanswer = run(request)\n", request)


def _zip(files: Mapping[str, str], body: str, request: Mapping[str, Any] | None) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(files.items()):
            with open(path, encoding="utf-8") as file:
                _write(archive, name, file.read())
        _write(archive, "__main__.py", _HEAD + body + _TAIL)
        _write(archive, "ncdiag/request.json", json.dumps(dict(request or {}), sort_keys=True))
    return out.getvalue()


def _write(archive: zipfile.ZipFile, name: str, content: str) -> None:
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    archive.writestr(info, content)


def unwrap(printed: str) -> str:
    """The JSON text that a payload printed, whatever banners stand around it. Raises ValueError when it is not whole."""
    _, begin, rest = printed.rpartition(f"\n{BEGIN} ")
    size, _, body = rest.partition("\n")
    if not begin or not size.strip().isdecimal():
        raise ValueError("its output holds no facts")
    text, end, _ = body.partition(f"\n{END}")
    text = text.replace("\r", "").replace("\n", "")
    if not end or len(text) != int(size):
        raise ValueError(f"its output was cut: {len(text)} of {size.strip()} characters")
    return text
