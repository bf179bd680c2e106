"""Which playbook a result of another command calls for."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ncdiag.model import CONFIDENCES, SCHEMA, Status
from ncdiag.playbook.loader import exists

MAX_BYTES = 256 << 20
_WAY_OUT = "--from takes what preflight, diagnose, hang-dump or bringup wrote with --format json -o FILE"


Found = tuple[str, "str | None"]
"""A cause, and the node it was found on; None where none is named."""


def ranked_causes(path: Path) -> list[Found]:
    """The causes that have a playbook, the first first, each once a node; never empty.

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
    return [found for found in dict.fromkeys(ranked) if exists(found[0])] or [("triage", None)]


def commands_for(left: Iterable[Found], here: str, options: Sequence[str], anywhere: bool) -> list[str]:
    """The commands that walk the playbooks of `left`, one a cause and place, with these options.

    `anywhere`: the options name the nodes already; else a cause of another machine than `here` is looked for there.
    """
    places: dict[tuple[str, bool], list[str]] = {}
    for cause, node in left:
        elsewhere = not anywhere and node not in (None, here)
        places.setdefault((cause, elsewhere), []).extend([str(node)] * elsewhere)
    return [
        shlex.join(
            ["ncdiag", "playbook", "run", cause, *(["--nodes", f"ssh:{','.join(nodes)}"] if nodes else []), *options]
        )
        for (cause, _), nodes in places.items()
    ]


def _causes(data: dict[str, Any]) -> list[Found]:
    entries = [entry for entry in _entries(data, "causes") if entry.get("confidence") in CONFIDENCES]
    return [(str(entry.get("playbook") or entry.get("cause")), _node(entry)) for entry in entries]


def _findings(data: dict[str, Any]) -> list[Found]:
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
