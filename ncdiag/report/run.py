"""When something was looked at, on which machine ncdiag ran, and which ncdiag."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ncdiag import __version__
from ncdiag.model import Snapshot


class Run(NamedTuple):
    """Empty where a file does not say it."""

    at: str = ""
    """UTC, `2026-11-30T06:58:04Z`."""
    host: str = ""
    version: str = ""

    def as_dict(self) -> dict[str, str]:
        """The key `run` of the JSON contract."""
        return self._asdict()

    def told(self) -> str:
        """`2026-11-30 06:58:04 UTC, ncdiag 0.1.0 on login1`."""
        when = self.at.replace("T", " ").replace("Z", " UTC") or "at a time that was not recorded"
        by = (f"ncdiag {self.version}" if self.version else "") + (f" on {self.host}" if self.host else "")
        return ", ".join(part for part in (when, by.strip()) if part)


def now() -> Run:
    """Of what is found now, here."""
    return Run(_utc(time.time()), platform.node(), __version__)


def of_snapshot(snapshot: Snapshot) -> Run:
    """Its time is that of the last facts, which may be older than their judgement; none where they do not tell it. Of no node: now."""
    times = [node.meta.get("collected_at") for node in snapshot.nodes.values()]
    known = [at for at in times if isinstance(at, (int, float)) and 0 < at < 1e11]
    return now()._replace(at=_utc(max(known)) if known else "") if snapshot.nodes else now()


def of_bundle(meta: Mapping[str, Any]) -> Run:
    """Its time is that of the dump; `meta`: its META.json."""
    return now()._replace(at=str(meta.get("created") or "").replace("+00:00", "Z"))


def of_data(data: Mapping[str, Any]) -> Run:
    """Out of saved JSON."""
    found = data.get("run")
    if not isinstance(found, Mapping):
        return Run()
    return Run(*(value if isinstance(value := found.get(key), str) else "" for key in Run._fields))


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
