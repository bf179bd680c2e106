from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ncdiag.host import Host, Recorded
from ncdiag.model import Finding
from ncdiag.tree import MemoryTree
from tests.probes.judging import collected, judged


def tree(
    system: str | None = None,
    user: str | None = None,
    environ: dict[str, str] | None = None,
    absent: tuple[str, ...] = (),
) -> Recorded:
    made = MemoryTree()
    meta = {"environ": environ or {"HOME": "/home/u"}, "absent": absent}
    made.add_file("/META.json", json.dumps(meta).encode())
    for path, text in (("/etc/nccl.conf", system), ("/home/u/.nccl.conf", user)):
        if text is not None:
            made.add_file(path, text.encode())
    return Recorded(made)


def found(host: Host, environ: dict[str, str] | None = None) -> list[tuple[str, str]]:
    facts: dict[str, Any] = {
        "nccl-conf-files": collected("nccl-conf-files", host),
        "nccl-environment": {"environ": environ, "reason": None, "absent": []},
    }
    return [(finding.status.value, finding.source) for finding in judged("nccl-conf-files", {"a": facts})]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("NCCL_DEBUG=INFO", "ok"),
        ('# NCCL_DEBUG="x"', "ok"),
        ("NCCL_DEBUG = INFO", "warn"),
        ("export NCCL_DEBUG=INFO", "warn"),
        ('NCCL_SOCKET_IFNAME="eth0"', "warn"),
        ("NCCL_IB_TC=106 # RoCE", "warn"),
        ("NCCL_SOCKET_IFNAMES=eth0", "warn"),
        ("NCCL_IB_TIMEOUT=99", "warn"),
        ("NCCL_IB_TIMEOUT=22\r", "ok"),
        ("not a setting", "ok"),
        ("MY_OWN=thing", "ok"),
        ("NCCL_DEBUG=INFO\nNCCL_DEBUG=WARN", "warn"),
    ],
)
def test_lines(line: str, status: str) -> None:
    assert (status == "warn") == any(entry[0] == "warn" for entry in found(tree(system=line + "\n")))


def test_overridden_values_name_both_places() -> None:
    host = tree(system="NCCL_DEBUG=INFO\nNCCL_IB_TC=106\n", user="NCCL_IB_TC=0\n")
    assert found(host, {"NCCL_DEBUG": "WARN"}) == [
        ("ok", "/home/u/.nccl.conf"),
        ("warn", "/etc/nccl.conf line 1"),
        ("warn", "/etc/nccl.conf line 2"),
    ]


def test_conf_file_replaces_the_one_at_home() -> None:
    host = tree(user="NCCL_DEBUG=INFO\n", environ={"HOME": "/home/u", "NCCL_CONF_FILE": "/opt/none.conf"})
    assert [entry["path"] for entry in collected("nccl-conf-files", host)["files"]] == [
        "/opt/none.conf",
        "/etc/nccl.conf",
    ]
    assert found(host)[0] == ("unknown", "/opt/none.conf"), "nobody looked for it"
    looked = {"HOME": "/home/u", "NCCL_CONF_FILE": "/opt/none.conf"}
    assert found(tree(environ=looked, absent=("/opt/none.conf",)))[0] == ("warn", "environment")


def test_unreadable_is_unknown() -> None:
    made = MemoryTree()
    made.add_file("/etc/nccl.conf", b"")
    made.add_file("/META.json", b'{"errors": {"/etc/nccl.conf": 13}}')
    assert found(Recorded(made)) == [("unknown", "/etc/nccl.conf")]


def test_live(tmp_path: Path) -> None:
    (tmp_path / ".nccl.conf").write_text("NCCL_DEBUG=INFO\n")
    files = collected("nccl-conf-files", Host(environment={"HOME": str(tmp_path), "NCCL_CONF_FILE": ""}))["files"]
    assert files[0]["state"] == "read" and files[0]["lines"] == [{"line": 1, "name": "NCCL_DEBUG", "value": "INFO"}]


def test_the_same_value_in_two_places_is_no_contradiction() -> None:
    """As images with NCCL settings have it: in the environment and in both files."""

    def findings(value: str) -> list[Finding]:
        files = [
            {"path": path, "by": "default", "state": "read", "reason": None, "lines": [{"line": 2, "name": "NCCL_NVLS_ENABLE", "value": text}]}
            for path, text in (("/root/.nccl.conf", "0"), ("/etc/nccl.conf", value))
        ]  # fmt: skip
        environ: dict[str, Any] = {"environ": {"NCCL_NVLS_ENABLE": "0"}, "reason": None, "absent": []}
        return judged("nccl-conf-files", {"a": {"nccl-conf-files": {"files": files}, "nccl-environment": environ}})

    assert [finding.status.value for finding in findings("0")] == ["ok", "ok"]
    assert [finding.status.value for finding in findings("1")] == ["ok", "warn"]
