"""From what a probe advises about variables to settings of an environment file. Pure.

Only advice that leaves nothing open is followed: `unset NAME`, `export NAME=VALUE`, several joined by `;`. One open piece
(a value to be filled in, an "or") leaves the whole advice to the person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ncdiag.model import Finding, Status

_UNSET = re.compile(r"unset ([A-Z][A-Za-z0-9_]*)(?: \([^()]*\))?")
_EXPORT = re.compile(r"(?:export|set) ([A-Z][A-Za-z0-9_]*)=('[^'<>…]*'|[^\s'\"<>…$`;|&]+)(?: \([^()]*\))?")
_NAMES = re.compile(
    r"(?:NCCL|GLOO|VLLM|RAY|TORCH|TORCHELASTIC|TP|UCX|FI|CUDA|HIP|ROCR|MASTER|PYTORCH|OMP)_[A-Za-z0-9_]+"
)


def settings_of(findings: Iterable[Finding]) -> dict[str, str | None]:
    """Variable -> its value, None to take it out; of the `fail` and `warn` findings. Two that contradict cancel out."""
    settings: dict[str, str | None] = {}
    contradicted = set()
    for finding in findings:
        if finding.status not in (Status.FAIL, Status.WARN):
            continue
        for name, value in (_pieces(finding.remedy or "") or {}).items():
            if settings.setdefault(name, value) != value:
                contradicted.add(name)
    return {name: value for name, value in settings.items() if name not in contradicted}


def _pieces(remedy: str) -> dict[str, str | None] | None:
    """None when any piece is something else than one setting."""
    settings: dict[str, str | None] = {}
    for piece in remedy.split(";"):
        unset, export = _UNSET.fullmatch(piece.strip()), _EXPORT.fullmatch(piece.strip())
        match = unset or export
        if match is None or not _NAMES.fullmatch(match.group(1)):
            return None
        settings[match.group(1)] = None if unset else match.group(2).strip("'")
    return settings
