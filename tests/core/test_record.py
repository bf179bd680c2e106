"""What a recorded tree gives back: what was listed is listed again, and what was not read stays unread."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from ncdiag import registry
from ncdiag.collect import collect
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


@pytest.mark.parametrize(
    "section", ["errors", "commands", "exits", "answers", "stat", "space", "modes", "listed", "pid", "python"]
)
def test_a_recording_with_a_broken_section_gives_the_rest(tmp_path: Path, section: str) -> None:
    (tmp_path / "META.json").write_text(json.dumps({"node": "a", section: ["nonsense"]}))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "version").write_text("Linux version 6.8\n")
    node = collect(Recorded(open_tree(str(tmp_path))), list(registry.load().values()))
    assert node.node == "a"
    assert not [reason for reason in node.errors.values() if reason.startswith(("AttributeError", "TypeError"))]


def test_what_was_looked_for_in_vain_is_known_to_be_absent(tmp_path: Path) -> None:
    recorder = Recorder(Host())
    assert recorder.value(str(tmp_path / "no.conf")) is None
    recorder.save(str(tmp_path / "tree.tar.gz"))
    again = Recorded(open_tree(str(tmp_path / "tree.tar.gz")))
    assert again.sought(str(tmp_path / "no.conf")) and not again.sought(str(tmp_path / "other.conf"))


def test_a_name_that_cannot_be_followed_takes_nothing_from_the_rest(tmp_path: Path) -> None:
    """As the open files of another user's processes: their folder is listed, and what they are is not told."""
    recorder = Recorder(Listed())
    assert recorder.list("/proc/1/fd") == ["0", "1"]
    recorder.save(str(tmp_path / "tree"))
    assert Recorded(open_tree(str(tmp_path / "tree"))).list("/proc/1/fd") == ["0", "1"]


class Listed(Host):
    def list(self, path: str) -> list[str]:
        return ["0", "1"]
