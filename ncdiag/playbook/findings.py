"""Which playbook a result of another command calls for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ncdiag.model import CONFIDENCES, SCHEMA, Status
from ncdiag.playbook.loader import exists

MAX_BYTES = 256 << 20
_WAY_OUT = "--from takes what preflight, diagnose, hang-dump or bringup wrote with --format json -o FILE"


def first_cause(path: Path) -> tuple[str, str | None]:
    """The first cause that has a playbook, and the node it was found on (None where none is named).

    `causes` come ranked, `findings` from `fail` to `warn` in their order; `triage` where no cause is named. Raises
    ValueError in one sentence.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    if not text.strip():
        raise ValueError(f"{path} is empty; {_WAY_OUT}")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(
            f"{path} holds nothing that is understood here: it is no JSON; {_WAY_OUT}; of a log: ncdiag diagnose {path} "
            "--format json -o findings.json"
        ) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not {"causes", "findings"} & set(data):
        raise ValueError(f"{path} is JSON, but no result of schema {SCHEMA} with causes or findings; {_WAY_OUT}")
    ranked = _causes(data) or _findings(data)
    return next(((cause, node) for cause, node in ranked if exists(cause)), ("triage", None))


def _causes(data: dict[str, Any]) -> list[tuple[str, str | None]]:
    entries = [entry for entry in _entries(data, "causes") if entry.get("confidence") in CONFIDENCES]
    return [(str(entry.get("playbook") or entry.get("cause")), _node(entry)) for entry in entries]


def _findings(data: dict[str, Any]) -> list[tuple[str, str | None]]:
    entries = [entry for entry in _entries(data, "findings") if entry.get("cause")]
    order = (Status.FAIL.value, Status.WARN.value)
    return [
        (str(entry["cause"]), _node(entry)) for status in order for entry in entries if entry.get("status") == status
    ]


def _node(entry: dict[str, Any]) -> str | None:
    where = entry.get("where")
    node = where.get("node") if isinstance(where, dict) else None
    return node if isinstance(node, str) and node else None


def _entries(data: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = data.get(key)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
