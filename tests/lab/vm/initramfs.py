"""The machine's whole file system as one cpio archive (newc), written here: busybox, Python, tools, modules."""

from __future__ import annotations

import importlib.util
import marshal
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.lab.vm.kernel import Kernel, NotHere

MODULES = (
    "virtio_pci", "virtio_rng", "crc32_generic", "crc32_pclmul", "9pnet_virtio", "9p", "rdma_rxe", "ib_uverbs", "rdma_ucm", "veth", "bridge", "8021q", "bonding", "dummy", "crc32c_generic", "nf_tables",
)  # fmt: skip
TOOLS = {
    "ip": "iproute2", "rdma": "iproute2", "ibv_devinfo": "ibverbs-utils", "ibv_rc_pingpong": "ibverbs-utils", "ib_write_bw": "perftest",
    "nft": "nftables",
}  # fmt: skip
"""Program -> the package that has it."""

DRIVER = "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so"
UNWINDER = "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1"
"""Loaded when a thread is ended, and by no program by name."""
APPLETS = ("sh", "mount", "mkdir", "insmod", "poweroff", "sync", "umount", "cat", "hostname", "sysctl")
_UNNEEDED = re.compile(
    r"/(test|tests|idlelib|tkinter|turtledemo|ensurepip|lib2to3|pydoc_data|site-packages|dist-packages|config-[^/]*|__pycache__)(/|$)"
)


class Archive:
    """A cpio archive that grows; folders come by themselves, the first to take a name keeps it."""

    def __init__(self, path: Path) -> None:
        self._out = path.open("wb")
        self._seen: set[str] = set()

    def _put(self, name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        if name in self._seen:
            return
        self._seen.add(name)
        raw = name.encode() + b"\0"
        numbers = (len(self._seen), mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(raw), 0)
        head = b"070701" + b"".join(b"%08x" % number for number in numbers) + raw
        self._out.write(head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4))

    def folder(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for end in range(1, len(parts) + 1):
            self._put("/".join(parts[:end]), stat.S_IFDIR | 0o755)

    def data(self, path: str, content: bytes, mode: int = 0o755) -> None:
        self.folder(os.path.dirname(path) or "/")
        self._put(path.strip("/"), stat.S_IFREG | mode, content)

    def link(self, path: str, target: str) -> None:
        self.folder(os.path.dirname(path) or "/")
        self._put(path.strip("/"), stat.S_IFLNK | 0o777, target.encode())

    def device(self, path: str, major: int, minor: int) -> None:
        self._put(path.strip("/"), stat.S_IFCHR | 0o600, device=(major, minor))

    def program(self, path: str) -> None:
        """A file with the libraries it needs, all at their own places."""
        self.data(_place(path), Path(path).read_bytes())
        told = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+\.so\S*)", told):
            self.data(_place(library), Path(library).read_bytes())

    def close(self) -> None:
        self._put("TRAILER!!!", 0)
        self._out.close()


def _place(path: str) -> str:
    """/lib and /bin are links into /usr."""
    return re.sub(r"^/(bin|sbin|lib|lib64)/", r"/usr/\1/", path)


def missing() -> list[str]:
    """Packages whose programs are not here."""
    wanted = {**TOOLS, "qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "depmod": "kmod"}
    found = {package for tool, package in wanted.items() if shutil.which(tool, path=_path()) is None}
    return sorted(found | ({"ibverbs-providers"} if not os.path.exists(DRIVER) else set()))


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"


def build(path: Path, kernel: Kernel, sources: Mapping[str, bytes], files: Mapping[str, bytes]) -> None:
    """`sources`: Python files (archive path -> text), put in compiled; `files` as they are. Raises NotHere."""
    archive = Archive(path)
    for folder in ("proc", "sys", "dev", "run", "tmp", "out", "etc", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64"):
        archive.folder(folder)
    for name in ("bin", "sbin", "lib", "lib64"):
        archive.link(name, "usr/" + name)
    archive.device("dev/console", 5, 1)
    archive.program(os.path.realpath(_which("busybox")))
    for applet in APPLETS:
        archive.link(f"usr/bin/{applet}", os.path.realpath(_which("busybox")))
    for tool in TOOLS:
        place = os.path.realpath(_which(tool))
        archive.program(place)
        if place != f"/usr/bin/{tool}":
            archive.link(f"usr/bin/{tool}", place)
    archive.program(DRIVER)
    archive.program(UNWINDER)
    archive.data("etc/libibverbs.d/rxe.driver", b"driver rxe\n", 0o644)
    archive.data("etc/passwd", b"root:x:0:0::/:/bin/sh\n", 0o644)
    _modules(archive, kernel)
    _python(archive)
    for place, source in sources.items():
        archive.data(place + "c", _compiled(source, place), 0o644)
    for place, content in files.items():
        archive.data(place, content)
    archive.close()


def _which(tool: str) -> str:
    found = shutil.which(tool, path=_path())
    if found is None:
        raise NotHere(f"{tool} is not installed")
    return found


def _modules(archive: Archive, kernel: Kernel) -> None:
    """The modules and what they need, and /modules: their paths in the order to load them."""
    needs = {}
    for line in (kernel.modules / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        needs[path] = others.split()
    by_name = {Path(path).name.partition(".")[0].replace("-", "_"): path for path in needs}
    order: list[str] = []
    for name in MODULES:
        for path in (*reversed(needs.get(by_name.get(name, ""), [])), by_name.get(name, "")):
            if path and path not in order:
                order.append(path)
    if by_name.get("rdma_rxe") is None:
        raise NotHere(f"kernel {kernel.version} has no rdma_rxe (the cloud kernel does not)")
    for path in order:
        archive.data(f"modules/{Path(path).name}", (kernel.modules / path).read_bytes(), 0o644)
    archive.data("modules/order", "".join(f"/modules/{Path(path).name}\n" for path in order).encode(), 0o644)


def _python(archive: Archive) -> None:
    """The interpreter of these tests, its library compiled (no source: starts faster, whatever the clock says)."""
    base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    archive.program(base)
    archive.link("usr/bin/python3", base)
    libraries = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    libraries = {os.path.realpath(path.replace(sys.prefix, sys.base_prefix)) for path in libraries}
    for library in libraries:
        for path in _files(Path(library)):
            if path.suffix == ".py":
                archive.data(_place(f"{path}c"), _library(path), 0o644)
            elif path.suffix == ".so":
                archive.program(str(path))


def _files(library: Path) -> Iterable[Path]:
    for root, folders, names in os.walk(library):
        if _UNNEEDED.search(root[len(str(library)) :] + "/"):
            folders.clear()
            continue
        yield from (Path(root) / name for name in sorted(names))


def _library(path: Path) -> bytes:
    """The compiled form that Python keeps beside the file, if it is there."""
    kept = path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
    try:
        return kept.read_bytes()
    except OSError:
        return _compiled(path.read_bytes(), str(path))


def _compiled(source: bytes, name: str) -> bytes:
    """As a .pyc without its source is: magic number, flags, time and size of none, code."""
    code = compile(source, name, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)
