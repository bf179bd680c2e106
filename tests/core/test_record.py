"""What a recorded tree gives back: what was listed is listed again, and what was not read stays unread."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ncdiag.host import Absent, Host, Recorded, Unreadable
from ncdiag.record import Recorder
from ncdiag.tree import open_tree


@pytest.mark.parametrize("form", ["tree", "tree.tar.gz"])
def test_names_that_were_only_listed(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "libraries"
    folder.mkdir()
    for name in ("libibverbs.so.1", "read.me"):
        (folder / name).write_text("text\n")
    (tmp_path / "link").symlink_to(folder)
    recorder = Recorder(Host())
    assert recorder.list(str(tmp_path / "link")) == ["libibverbs.so.1", "read.me"]
    assert recorder.read(str(folder / "read.me")) == "text\n"
    recorder.save(str(tmp_path / form))
    again = Recorded(open_tree(str(tmp_path / form)))
    assert again.list(str(tmp_path / "link")) == ["libibverbs.so.1", "read.me"]
    assert again.read(str(folder / "read.me")) == "text\n"
    with pytest.raises(Absent):
        again.read(str(folder / "libibverbs.so.1"))


class Closed(Host):
    """A machine with a folder that may not be listed."""

    def list(self, path: str) -> list[str]:
        raise Unreadable(path, "Permission denied", errno.EACCES)


def test_a_folder_that_could_not_be_listed_is_not_one_that_is_not_there(tmp_path: Path) -> None:
    recorder = Recorder(Closed())
    assert not recorder.exists("/nowhere/at/all")
    with pytest.raises(Unreadable):
        recorder.names("/sys/class/infiniband")
    recorder.save(str(tmp_path / "tree"))
    again = Recorded(open_tree(str(tmp_path / "tree")))
    with pytest.raises(Unreadable):
        again.names("/sys/class/infiniband")
    assert again.sought("/nowhere/at/all") and not again.sought("/nowhere/else")
