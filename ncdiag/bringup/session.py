"""One `ncdiag bringup`: what is started or attached to, who looks, who is told, and the end of it all."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from ncdiag import bundle, redact
from ncdiag import engine as environment_of
from ncdiag.bringup import command
from ncdiag.bringup.agents import Eyes, Local, open_nodes, ray_agent
from ncdiag.bringup.attached import Attached, engine_of, environment
from ncdiag.bringup.follow import Files
from ncdiag.bringup.guard import GRACE_S
from ncdiag.bringup.output import Output
from ncdiag.bringup.result import LogsOnly, Result
from ncdiag.bringup.stall import Picture
from ncdiag.bringup.start import Child, StartError
from ncdiag.bringup.timeline import Timeline
from ncdiag.bringup.watch import Watch
from ncdiag.fleet import FleetError
from ncdiag.hang.claims import at_own_line, names
from ncdiag.hang.content import DumpContent
from ncdiag.hang.scene import View
from ncdiag.hang.verdict import Verdict
from ncdiag.host import Host, HostError
from ncdiag.model import SCHEMA, Finding, RankState, Status
from ncdiag.processes import family
from ncdiag.processes.machine import Machine
from ncdiag.report import bringup as report
from ncdiag.report.run import now

HOOK_S = 30.0
SHORT_GRACE_S = 3.0
"""How long a command whose time is over, or that stood still to the end, may take to end before it is killed."""


class SessionError(Exception):
    """It cannot begin; one sentence with the way out."""


class Session:
    """Use as a context: what was started ends with it."""

    def __init__(
        self,
        *,
        command_line: Sequence[str],
        attach: int | None,
        in_ray: str | None,
        follow: Sequence[str],
        nodes: str,
        ssh_user: str | None,
        ssh_config: str | None,
        no_preflight: bool,
        python: str | None,
        ready_when: str,
        stall_after_s: float,
        on_stall: str,
        bundle: str | None,
        timeout_s: float | None,
        hook: str | None,
        then: str,
        quiet_child: str | None,
        timeline: str | None,
        color: str,
        quiet: bool,
    ) -> None:
        ways = bool(command_line) + (attach is not None) + (in_ray is not None)
        if ways > 1 or (ways == 0 and not follow):
            raise SessionError("give one of: -- COMMAND…, --attach PID, --ray, or log files with --follow")
        if in_ray is not None and importlib.util.find_spec("ray") is None:
            raise SessionError(
                "--ray needs Ray in ncdiag's own environment: pip install 'ncdiag[ray]' with the cluster's version"
            )
        self._stall_after_s, self._timeout_s, self._on_stall = stall_after_s, timeout_s, on_stall
        self._bundle, self._hook, self._timeline_file, self._color = bundle, hook, timeline, color
        self._follow = tuple(os.path.abspath(path) for path in follow)
        self.owns = bool(command_line)
        self._in_ray, self._attach = in_ray, attach
        self.output = Output()
        self.engine = self._read_engine(command_line)
        self._job: str | None = None
        self._child: Child | None = None
        self._watch: Watch | None = None
        self._interrupted = False
        self._no_preflight = no_preflight or not self.owns
        self._by_health, self._python = ready_when == "health", python
        self._command = list(command_line)
        try:
            meeting = {"meeting": self.engine.meeting} if self.engine.meeting else {}
            self._agents = open_nodes(nodes, meeting, user=ssh_user, config=ssh_config)
        except FleetError as error:
            raise SessionError(str(error)) from None
        self._nodes = nodes
        self._ssh = {"ssh_user": ssh_user, "ssh_config": ssh_config}
        try:
            self._file = open(quiet_child, "wb") if quiet_child else None  # noqa: SIM115
        except OSError as error:
            raise SessionError(f"cannot write {quiet_child}: {error.strerror}") from None
        self.screen = report.Screen(color=color, quiet=quiet)
        self._eyes = Eyes(self._agents)
        self._ray_started = False
        self._saved = 0
        self._grace_s = GRACE_S + 5
        self._findings: list[Finding] = []
        """Of the preflight, what was not well."""

    def _read_engine(self, command_line: Sequence[str]) -> command.Engine:
        if self._attach is None:
            return command.read(command_line, os.environ)
        try:
            return engine_of(family.checked(Machine(Host()), self._attach))
        except family.FamilyError as error:
            raise SessionError(str(error)) from None
        except HostError:
            raise SessionError(
                f"process {self._attach} may not be looked at by this user; run ncdiag as root or as its user"
            ) from None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.stop(self._grace_s)
        self._eyes.close()
        self.screen.close()
        if self._file is not None:
            self._file.close()

    def interrupt(self) -> None:
        """Ctrl-C or SIGTERM: the watch ends, and with it what was started; the second time it is killed."""
        if self._interrupted and self._child is not None:
            self._child.kill()
        self._interrupted = True
        if self._watch is not None:
            self._watch.stopping = True

    # the run

    def run(self) -> Result:
        """Until it is up or over."""
        if not self._no_preflight:
            self._preflight()
        try:
            process = self._begin()
        except StartError as error:
            raise SessionError(str(error)) from None
        self._watch = Watch(
            process,
            self._eyes,
            self.output,
            self.engine,
            self,
            stall_after_s=self._stall_after_s,
            stop_on_stall=self._on_stall == "stop",
            timeout_s=self._timeout_s,
            by_ranks=self._in_ray is not None,
            by_health=self._by_health,
            extra=self._extra,
        )
        self._watch.stopping = self._interrupted
        return self._ended(self._watch.until_ready())

    def stay(self) -> Result:
        """After it came up: with it until it ends."""
        assert self._watch is not None
        return self._ended(self._watch.until_end())

    def _begin(self) -> Child | Attached | LogsOnly:
        if not self.owns:
            if self._attach is not None:
                self._eyes.agents.insert(0, Local({"pids": [self._attach], "files": self._follow}))
            elif self._in_ray is not None:
                self._eyes.agents.append(ray_agent(sys.executable, self._in_ray, os.environ))
            else:
                self._eyes.agents.append(Files(self._follow, self.output))
            return Attached(self._attach) if self._attach is not None or self._in_ray is not None else LogsOnly()
        self._child = Child(self._command, self._take, terminal=self.screen.both and self._file is None)
        self._eyes.agents.insert(0, Local({"guard": self._child.guard, "files": self._follow}))
        return self._child

    def _take(self, stderr: bool, data: bytes) -> None:
        self.output.feed(stderr, data)
        if self._file is not None:
            self._file.write(data)
            self._file.flush()
        else:
            self.screen.write(stderr, data)

    def _extra(self, states: Sequence[RankState]) -> Mapping[str, Any]:
        """What every look asks besides: followed files, the Ray job. The bridge to Ray comes with the first engine core."""
        server = next((state for state in states if state.role == "api-server" and state.state != "gone"), None)
        if not self.engine.serves and server is not None and self._watch is not None:
            with contextlib.suppress(HostError):  # a script: only now its engine's command line is known
                self.engine = self._watch.engine = engine_of(server.pid)
        wants_ray = self.engine.ray or any(state.role == "ray-worker" for state in states)
        core = next(
            (state for state in states if state.role in ("engine-core", "api-server") and state.state != "gone"), None
        )
        if wants_ray and core is not None and not self._ray_started and self._in_ray is None:
            self._ray_started = True
            found = environment_of.find(Host(pid=core.pid))
            address = core.settings.get("RAY_ADDRESS") or "auto"
            self._eyes.agents.append(
                ray_agent(found.python if found is not None else sys.executable, address, environment(core.pid))
            )
        answers = self._watch.answers if self._watch is not None else []
        self._job = next((answer["job"] for answer in answers if answer.get("job")), self._job)
        return {"job": self._job}

    def _preflight(self) -> None:
        from ncdiag.bringup import preflight
        from ncdiag.report.console import findings_as_text

        try:
            python = self._python or preflight.interpreter(self._command)
            nodes, findings = preflight.run(self.engine, self._nodes, self._ssh, python)
        except FleetError as error:
            raise SessionError(str(error)) from None
        self._findings = [finding for finding in findings if finding.status not in (Status.OK, Status.SKIP)]
        self.screen.say(findings_as_text(nodes, findings, show_all=False, color="never"))

    # what the watch tells

    def show(self, at_s: float, picture: Picture, timeline: Timeline, errors: Sequence[str]) -> None:
        self.screen.show(at_s, picture.views, timeline, picture.quiet_s, errors)

    def stalled(
        self, at_s: float, quiet_s: float, verdict: Verdict, content: DumpContent, halted: Sequence[View]
    ) -> None:
        """Report, bundle, hook."""
        self.screen.say(report.stall_as_text(at_s, quiet_s, verdict, content.not_read(), halted, color="never"))
        if self._on_stall == "bundle":
            self._save(content)
        self._call_hook(
            {
                "schema": SCHEMA,
                "command": "bringup",
                "event": "stall",
                "at_s": round(at_s, 2),
                "quiet_s": round(quiet_s, 1),
                "verdict": verdict.kind,
                **{name: value for name, value in verdict.as_dict().items() if name != "kind"},
            }
        )

    def rests(self, at_s: float, quiet_s: float, why: str) -> None:
        self.screen.say(f"ncdiag {at_s:6.1f} s  nothing has moved for {quiet_s:.0f} s, and that is no stall: {why}")

    def computes(self, at_s: float, picture: Picture) -> None:
        who = picture.computing
        self.screen.say(
            f"ncdiag {at_s:6.1f} s  for {picture.computing_s:.0f} s nothing has moved but the CPU of {names(who)}{at_own_line(who[0])}, and "
            f"others wait: an endless loop or a very long calculation, which is called no stall; look closer with: ncdiag hang-dump {who[0].state.pid}"
        )

    def moves_again(self, at_s: float, after_s: float) -> None:
        self.screen.say(f"ncdiag {at_s:6.1f} s  it moves again")

    def _save(self, content: DumpContent) -> None:
        self._saved += 1
        path = self._bundle or time.strftime("ncdiag-bringup-%Y%m%d-%H%M%S.tar.gz")
        if self._bundle and self._saved > 1:
            stem, dot, ending = path.partition(".tar")
            path = f"{stem}-{self._saved}{dot}{ending}"
        try:
            bundle.save(path, content)
            self.screen.say(f"saved {path}; judge it elsewhere with: ncdiag diagnose {path}")
        except bundle.BundleError as error:
            self.screen.say(f"no bundle was saved: {error}")

    def _call_hook(self, data: Mapping[str, Any]) -> None:
        if not self._hook:
            return
        try:
            done = subprocess.run(
                ["sh", "-c", self._hook],
                input=json.dumps(redact.data(data)).encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=HOOK_S,
                check=False,
            )
            if done.returncode:
                self.screen.say(
                    f"--hook ended with status {done.returncode}: {done.stderr.decode('utf-8', 'replace').strip()[-300:]}"
                )
        except subprocess.TimeoutExpired:
            self.screen.say(f"--hook gave no end within {HOOK_S:g} s and was ended")

    # the end

    def _ended(self, result: Result) -> Result:
        if result.outcome in ("timeout", "stalled"):
            self._grace_s = SHORT_GRACE_S
        if self._timeline_file:
            with contextlib.suppress(OSError), open(self._timeline_file, "w", encoding="utf-8") as file:
                json.dump({"schema": SCHEMA, "run": now().as_dict(), **result.timeline.as_dict()}, file, indent=1)
                self.screen.say(f"saved {self._timeline_file}; show it with: ncdiag report {self._timeline_file}")
        if result.outcome in ("ready", "failed", "timeout", "stalled"):
            self._call_hook({**json.loads(self.as_json(result, 0)), "event": result.outcome})
        return result

    def _data(self, result: Result) -> dict[str, Any]:
        return {
            "outcome": result.outcome,
            "started_at": round(result.started_at, 2),
            "took_s": result.took_s,
            "timeout_s": self._timeout_s,
            "exit_status": result.status,
            "check": result.check.as_dict() if result.check is not None else None,
            "summary": result.summary.as_dict() if result.summary is not None else None,
            "stalls": result.stalls,
            "preflight": [finding.as_dict() for finding in self._findings],
            "not_read": result.errors,
            "timeline": result.timeline.as_dict(),
        }

    def as_text(self, result: Result, color: str | None) -> str:
        return report.result_as_text(self._data(result), result.causes, color=color)

    def as_json(self, result: Result, code: int) -> str:
        return report.as_json(self._data(result), result.causes, result.verdict, code)
