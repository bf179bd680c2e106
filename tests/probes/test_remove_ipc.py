from __future__ import annotations

from typing import Any

import pytest

from ncdiag.host import Recorded
from ncdiag.tree import MemoryTree

from .judged import collected, judged, statuses

GOOD = {"logind": True, "setting": None, "source": "/etc/systemd/logind.conf", "uid": 1000}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "warn"),
        ({"setting": True}, "warn"),
        ({"setting": False}, "ok"),
        ({"uid": 0}, "skip"),
        ({"uid": None}, "skip"),
        ({"logind": False}, "skip"),
    ],
)
def test_table(change: dict[str, Any], status: str) -> None:
    assert statuses(judged("remove-ipc", {"a": {**GOOD, **change}})) == [status]


def test_last_file_wins_and_comments_do_not_count() -> None:
    tree = MemoryTree()
    tree.add_folder("/run/systemd/users")
    tree.add_file("/etc/systemd/logind.conf", b"[Login]\n#RemoveIPC=yes\nRemoveIPC=yes\n")
    tree.add_file("/etc/systemd/logind.conf.d/50.conf", b"[Login]\nRemoveIPC=no\n")
    facts = collected("remove-ipc", Recorded(tree)).facts["remove-ipc"]
    assert facts["logind"] and facts["setting"] is False and facts["source"].endswith("50.conf")
