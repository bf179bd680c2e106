from __future__ import annotations

import errno
import io
import os
import tarfile
from pathlib import Path

import pytest

from ncdiag.host import Absent, Recorded, TooLarge, Unreadable
from ncdiag.tree import FolderTree, MemoryTree, open_tree

TREES = Path(__file__).parent.parent / "trees"


def _tar(path: Path, members: dict[str, bytes | str | None]) -> str:
    """bytes: a file, str: a link, None: a folder."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if content is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
            else:
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return str(path)


def test_real_capture_reads_like_the_machine() -> None:
    host = Recorded(open_tree(str(TREES / "healthy-rocev2-gid3-empty.tar.gz")), "a")
    assert host.list("/sys/class/infiniband") == ["rxe0", "rxe1"]
    assert host.value("/sys/class/infiniband/rxe0/ports/1/state") == "4: ACTIVE"
    with pytest.raises(Unreadable) as caught:
        host.read("/sys/class/infiniband/rxe0/ports/1/gid_attrs/types/5")
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(Absent):
        host.read("/sys/class/infiniband/rxe7/ports/1/state")
    assert host.names("/sys/class/nothing") == []
    assert host.run(["ip", "-j", "addr"]).out.startswith("[{")
    assert host.run(["ibv_devinfo", "-v"]).rc == 0
    with pytest.raises(Absent, match="not recorded"):
        host.run(["nvidia-smi"])


def test_folder_and_archive_are_the_same(tmp_path: Path) -> None:
    archive = str(TREES / "healthy-rocev2-gid3-empty.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="fully_trusted")
    folder, memory = Recorded(open_tree(str(tmp_path))), Recorded(open_tree(archive))
    for path in ("/sys/class/net/veth0/mtu", "/sys/class/infiniband/rxe0/ports/1/gids/1", "/proc/modules"):
        assert folder.read(path) == memory.read(path)
        assert folder.real(path) == memory.real(path)
    assert folder.list("/sys/class/net") == memory.list("/sys/class/net")


def test_links_never_lead_out(tmp_path: Path) -> None:
    secret = tmp_path / "outside"
    secret.write_text("outside")
    root = tmp_path / "tree"
    (root / "sys").mkdir(parents=True)
    (root / "sys" / "up").symlink_to("../../outside")
    (root / "sys" / "absolute").symlink_to(str(secret))
    (root / "sys" / "loop").symlink_to("loop")
    host = Recorded(FolderTree(str(root)))
    for name in ("up", "absolute"):
        with pytest.raises(Absent):
            host.read("/sys/" + name)
    with pytest.raises(Unreadable) as caught:
        host.read("/sys/loop")
    assert caught.value.errno == errno.ELOOP


@pytest.mark.parametrize("members", [{"../x": b""}, {"sys/../../x": b""}])
def test_archive_with_names_that_lead_out_is_refused(tmp_path: Path, members: dict[str, bytes | str | None]) -> None:
    with pytest.raises(ValueError, match="leads outside"):
        open_tree(_tar(tmp_path / "t.tar.gz", members))


def test_archive_in_one_folder_opens(tmp_path: Path) -> None:
    path = _tar(tmp_path / "t.tar.gz", {"host7/sys/class/net/eth0/mtu": b"9000\n", "host7/sys/class/net/e": "eth0"})
    assert Recorded(open_tree(path)).number("/sys/class/net/e/mtu") == 9000


@pytest.mark.parametrize("content", [b"", b"not a tar", b"\x1f\x8b\x08\x00broken"])
def test_damaged_archive_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.tar.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="t.tar.gz"):
        open_tree(str(path))


def test_cut_archive_is_one_sentence(tmp_path: Path) -> None:
    whole = (TREES / "healthy-rocev2-gid3-empty.tar.gz").read_bytes()
    for size in (100, len(whole) // 2):
        path = tmp_path / "t.tar.gz"
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="t.tar.gz"):
            open_tree(str(path))


def test_folder_without_a_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no captured tree"):
        open_tree(str(tmp_path))


def test_large_file_is_refused_not_read() -> None:
    tree = MemoryTree()
    tree.add_file("/proc/modules", b"x" * (2 << 20))
    with pytest.raises(TooLarge):
        Recorded(tree).read("/proc/modules")


def test_fifo_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    os.mkfifo(tmp_path / "sys" / "fifo")
    assert Recorded(FolderTree(str(tmp_path))).read("/sys/fifo") == ""
