from __future__ import annotations

from typing import Any

import pytest

from ncdiag.host import Host

from .judged import collected, judged

GIB = 1 << 30


def folder(**change: Any) -> dict[str, Any]:
    return {
        "path": "/tmp/ray",
        "use": "Ray's sessions",
        "exists_at": "/tmp",
        "total_bytes": 100 * GIB,
        "free_bytes": 50 * GIB,
        "inodes": 1000,
        "inodes_free": 900,
        "error": None,
        **change,
    }


@pytest.mark.parametrize(
    ("change", "status", "cause"),
    [
        ({}, "ok", None),
        ({"free_bytes": 4 * GIB}, "fail", "disk-full"),
        ({"free_bytes": 4 * GIB, "use": "downloaded models"}, "warn", "disk-full"),
        ({"total_bytes": 2 * GIB, "free_bytes": GIB // 2, "use": "temporary files"}, "warn", "disk-full"),
        ({"free_bytes": 1000, "use": "temporary files"}, "fail", "disk-full"),
        ({"inodes_free": 0}, "fail", "disk-full"),
        ({"inodes": 0, "inodes_free": 0}, "ok", None),
        ({"total_bytes": None, "free_bytes": None, "error": "Permission denied"}, "unknown", None),
        (
            {"path": "/scratch/users/somebody/with/a/long/name/and/more", "exists_at": "/scratch"},
            "ok",
            "env-unknown-or-invalid",
        ),
    ],
)
def test_table(change: dict[str, Any], status: str, cause: str | None) -> None:
    findings = judged("temp-space", {"a": [folder(**change)]})
    assert findings[0].status.value == status
    assert cause in {finding.cause for finding in findings}


def test_folders_follow_the_environment(tmp_path: Any) -> None:
    host = Host(
        environment={"RAY_TMPDIR": str(tmp_path / "ray"), "TMPDIR": str(tmp_path), "HF_HOME": "/no/such/place/hf"}
    )
    facts = {entry["use"]: entry for entry in collected("temp-space", host).facts["temp-space"]}
    assert facts["Ray's sessions"]["exists_at"] == str(tmp_path)
    assert facts["downloaded models"]["exists_at"] == "/"
    assert facts["temporary files"]["free_bytes"] > 0
