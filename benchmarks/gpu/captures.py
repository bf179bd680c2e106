"""What every capture has in common: a case runs on hosts of its own, hang dumps are taken of it, and nothing of it is left afterwards.

A case's folder holds what happened when (`notes.txt`), logs, RAS's own words, hang dumps as bundles (one a host, seen from inside it, and
`whole`, seen from the machine), and what each dump said and how long it took (`result.json`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import psutil
from hosts import Host, Lab, inner_pid, lab, program

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DUMP_S = 60


class AnyCase(Protocol):
    """What a case says of itself."""

    @property
    def name(self) -> str: ...
    @property
    def done(self) -> str: ...
    @property
    def causes(self) -> tuple[str, ...]: ...
    @property
    def seats(self) -> int:
        """How many of the machine's seats it takes; 0: it wants to be alone."""
        ...


class Run:
    """One case while it runs; `processes` by a key of the case's own (a rank, a host)."""

    def __init__(self, name: str, done: str, place: Path) -> None:
        self.place = place
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.result: dict[str, Any] = {"case": name, "done": done, "dumps": {}}
        self.started = time.monotonic()
        place.mkdir(parents=True, exist_ok=True)

    def note(self, text: str) -> None:
        with (self.place / "notes.txt").open("a") as file:
            file.write(f"[{time.monotonic() - self.started:6.1f}] {text}\n")

    def play(self, count: int, **options: Any) -> dict[str, Any]:
        """`steps` on so many hosts."""
        try:
            with lab(count, **options) as hosts:
                try:
                    self.steps(hosts)
                    self.result["ended"] = {key: process.poll() for key, process in self.processes.items()}
                finally:
                    self.keep_logs()
                    self.end()
        finally:
            self.result["seconds"] = round(time.monotonic() - self.started, 1)
            (self.place / "result.json").write_text(json.dumps(self.result, indent=1))
        return self.result

    def steps(self, hosts: Lab) -> None:
        raise NotImplementedError

    def running(self) -> list[int]:
        return [key for key, process in self.processes.items() if process.poll() is None]

    def dumps(self, hosts: Lab, of: Callable[[Host], int | None], tag: str = "", recorder: bool = True) -> None:
        """Of every host from inside, all at the same time, then of the machine. `of`: the key of a process of that host."""
        keys = {host.number: of(host) for host in hosts.hosts}
        with ThreadPoolExecutor(len(hosts.hosts)) as pool:
            list(pool.map(lambda host: self._inside(host, keys[host.number], tag), hosts.hosts))
        alive = [key for key in keys.values() if key is not None and self.processes[key].poll() is None]
        process = program(self.processes[alive[0]]) if alive else None
        if process is not None:
            self._dump(f"whole{tag}", ["--ask-recorder"] if recorder else [], process.pid, self._outside)

    def _inside(self, host: Host, key: int | None, tag: str) -> None:
        process = program(self.processes[key]) if key is not None else None
        number = inner_pid(process) if process is not None else None
        if number is None:
            return
        folder = self.place / f"{host.name}{tag}"
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            host.run([sys.executable, str(HERE / "raw_ras.py"), str(folder)], 40)
        self._dump(
            f"{host.name}{tag}",
            [],
            number,
            lambda argv: host.run(["sh", "-c", f'cd {ROOT} && exec "$@"', "sh", *argv], DUMP_S),
        )

    @staticmethod
    def _outside(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=DUMP_S, check=False, stdin=subprocess.DEVNULL, cwd=ROOT
        )

    def _dump(
        self, name: str, options: list[str], pid: int, run: Callable[[list[str]], subprocess.CompletedProcess[str]]
    ) -> None:
        said, bundle = self.place / f"{name}.json", self.place / f"{name}.tar.gz"
        argv = [
            sys.executable,
            "-m",
            "ncdiag",
            "hang-dump",
            str(pid),
            "--format",
            "json",
            "-o",
            str(said),
            "--bundle",
            str(bundle),
            *options,
        ]
        kept: dict[str, Any] = {"began": time.time()}
        self.result["dumps"][name] = kept
        clock = time.monotonic()
        try:
            done = run(argv)
        except subprocess.TimeoutExpired:
            kept["error"] = f"over {DUMP_S} s"
            return
        kept.update(seconds=round(time.monotonic() - clock, 2), exit=done.returncode, said=done.stderr[-400:])
        with contextlib.suppress(OSError, ValueError, LookupError):
            first = json.loads(said.read_text())["causes"][0]
            kept.update(
                cause=first["cause"], confidence=first["confidence"], where=first.get("where"), summary=first["summary"]
            )

    def keep_logs(self) -> None:
        """The logs as they are now: what ranks say when the lab ends them one after the other is no part of the case."""
        self.result["logs_kept"] = True
        for log in self.place.glob("*.log"):
            shutil.copyfile(log, log.with_suffix(".log.kept"))

    def end(self) -> None:
        """Everything that was started, by pid."""
        for process in self.processes.values():
            child = program(process)
            for member in [*child.children(recursive=True), child] if child is not None else []:
                with contextlib.suppress(psutil.Error):
                    member.kill()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for log in self.place.glob("*.log.kept"):
            log.replace(log.with_suffix(""))


class Seats:
    """At most so many at a time; who wants to be alone waits for all seats."""

    def __init__(self, count: int) -> None:
        self._free, self._count, self._changed = count, count, threading.Condition()

    @contextlib.contextmanager
    def taken(self, wanted: int) -> Iterator[None]:
        wanted = min(wanted, self._count) or self._count
        with self._changed:
            self._changed.wait_for(lambda: self._free >= wanted)
            self._free -= wanted
        try:
            yield
        finally:
            with self._changed:
                self._free += wanted
                self._changed.notify_all()


def line(result: dict[str, Any], case: AnyCase) -> str:
    """One line: whether the dump of the whole machine was right, what it said, its seconds."""
    dumps = {name: dump for name, dump in result["dumps"].items() if name.startswith("whole")}
    verdicts = [
        f"{dump.get('cause')}:{dump.get('confidence')} {dump.get('where') or ''} {dump.get('seconds', '-')} s"
        for dump in dumps.values()
    ]
    wrong = case.causes and any(dump.get("cause") not in case.causes for dump in dumps.values())
    return f"{'MISS' if wrong else 'ok  ' if dumps and case.causes else '-   '} {case.name:30} {' | '.join(verdicts) or 'ended by itself'}; {result.get('seconds')} s"


def run_all(
    cases: Sequence[Any], seats: int, until_s: float, folder: Path, play: Callable[[int, Any], dict[str, Any]]
) -> int:
    """Those that want to be alone first, then the others side by side. `play(number, case)` gives a result."""
    began, places, results = time.monotonic(), Seats(seats), {}

    def one(numbered: tuple[int, Any]) -> None:
        number, case = numbered
        with places.taken(case.seats):
            if time.monotonic() - began > until_s:
                print(f"left out, no time: {case.name}", flush=True)
                return
            try:
                results[case.name] = play(number, case)
                print(line(results[case.name], case), flush=True)
            except Exception as error:  # one case never stops the others
                print(f"LAB  {case.name}: {type(error).__name__}: {error}", flush=True)

    numbered = list(enumerate(sorted(cases, key=lambda case: case.seats > 0)))
    for pair in [pair for pair in numbered if pair[1].seats == 0]:
        one(pair)
    with ThreadPoolExecutor(max(seats // 2, 1)) as pool:
        list(pool.map(one, [pair for pair in numbered if pair[1].seats > 0]))
    (folder / "results.json").write_text(json.dumps(results, indent=1))
    print(f"{len(results)} cases in {time.monotonic() - began:.0f} s", flush=True)
    return 0
