"""Progress on stderr for whatever takes more than a second."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from types import TracebackType

from ncdiag.report.plain import plain

DELAY_S = 1.0


class Progress:
    """Counts steps; shows them on stderr from the second second on: one changing line on a terminal, a line every 10 s elsewhere."""

    def __init__(self, total: int, quiet: bool) -> None:
        self._total = total
        self._quiet = quiet
        self._done = 0
        self._nodes: set[str] = set()
        self._last = ""
        self._stop = threading.Event()
        self._shown = False
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> Progress:
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if not self._quiet:
            self._thread.join(1)
        if self._shown and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")

    def step(self, node: str, what: str) -> None:
        """Something of `node` is done."""
        self._done += 1
        self._nodes.add(node)
        self._last = f"{node} {what}".strip()

    def _show(self) -> None:
        started, period = time.monotonic(), DELAY_S
        while not self._stop.wait(period):
            self._shown = True
            line = f"{time.monotonic() - started:3.0f} s  {self._done} of {max(self._total, self._done)} done  {self._last}"
            terminal = sys.stderr.isatty()
            sys.stderr.write(f"\r\x1b[K{line}" if terminal else line + "\n")
            sys.stderr.flush()
            period = 0.2 if terminal else 10.0


class Doing:
    """Says on stderr what is being done: one changing line on a terminal, a line each elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> Doing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal and not self._quiet:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def say(self, text: str) -> None:
        """Now this; what begins with `note: ` stays."""
        if self._quiet:
            return
        line, stays = f"ncdiag: {plain(text)}", text.startswith("note: ") or not self._terminal
        before = "\r\x1b[K" if self._terminal else ""
        sys.stderr.write(f"{before}{line}\n" if stays else before + line[: shutil.get_terminal_size().columns - 1])
        sys.stderr.flush()
