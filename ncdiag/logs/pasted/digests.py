"""Image digests of pods and containers: `kubectl get pods -o jsonpath=…imageID`, `kubectl describe`, `docker inspect`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import SHELL, Line

_IMAGE = re.compile(r"(?:^|[\s/\"'])(?P<name>[\w-]+/[\w.-]+)@sha256:(?P<digest>[0-9a-f]{64})\b")


class Digests:
    """Repository -> the images of it that run."""

    triggers = ("@sha256:",)

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Line]] = {}

    def take(self, line: Line) -> bool:
        image = _IMAGE.search(line.text)
        if image and not SHELL.match(line.text) and len(self._found) < 1000:
            self._found.setdefault(image["name"], {}).setdefault(image["digest"], line)
        return False

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        for name, kept in self._found.items():
            if len(kept) > 1:
                lines = list(kept.values())[:4]
                yield Signal(
                    "version-mismatch",
                    Says.HINT,
                    f"{len(kept)} images of {name} run, told apart by their digests",
                    [line.evidence() for line in lines],
                    condition=True,
                    order=lines[0].order,
                    remedy="pin one image by digest or version, and pull it on all nodes (a tag such as latest is not pulled again: imagePullPolicy)",
                )
