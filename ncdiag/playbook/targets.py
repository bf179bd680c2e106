"""What a playbook is walked on: the nodes of a fleet, alive or captured. Only reads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ncdiag.check import check
from ncdiag.fleet import Request, open_fleet
from ncdiag.model import Finding, NodeFacts, Plan, Snapshot, unknown
from ncdiag.playbook.commands import refusal
from ncdiag.registry import ProbeSet, load

_COMMAND_PROBE = '''"""One read-only command of a playbook. Source: its output."""
from ncdiag.model import Probe

ARGV = {argv!r}


def collect(host):
    output = host.run(ARGV, timeout_s={limit_s}, limit=65536)
    return {{"rc": output.rc, "out": output.out, "err": output.err}}


PROBE = Probe("playbook-command", "the command can be run", None, collect, timeout_s={limit_s} + 2)
'''


@dataclass(frozen=True)
class Answer:
    """What one node answered to a command."""

    node: str
    rc: int | None
    """None: it was not run."""
    text: str
    """Output and error output, or why it was not run."""


@dataclass
class Target:
    """Where probes and commands of a playbook are run. Raises FleetError when the fleet as a whole cannot be used."""

    nodes: str = "local"
    """A fleet, as `--nodes` takes it: `local`, `file:SNAPSHOT` …"""
    folders: Sequence[str] = ()
    python: str | None = None
    pid: int | None = None
    environment: Callable[[], dict[str, str]] = dict
    """The variables the engine will be started with; asked anew for every probe, because a remedy may change them."""
    plan: Plan = field(default_factory=Plan)
    timeout_s: float = 60.0
    ssh_user: str | None = None
    ssh_config: str | None = None
    _kept: list[NodeFacts] = field(default_factory=list, init=False)
    """What was captured does not change, so it is read once."""

    @property
    def live(self) -> bool:
        """Whether there is a machine behind it; a snapshot or captured tree has none."""
        return not self.nodes.startswith("file:")

    @property
    def local(self) -> bool:
        """Whether it is the machine that this process runs on, the only one that remedies are applied to."""
        return self.nodes == "local"

    def probe(self, probe_id: str) -> list[Finding]:
        """What one probe concludes, never an empty list."""
        try:
            probes = load(self.folders)
            chosen = probes.chosen([probe_id])
        except (KeyError, FileNotFoundError):
            return [unknown(f"there is no probe {probe_id} in this ncdiag", source="registry")]
        if self.live:
            found = self._collect(probes, chosen, self.folders, self.timeout_s)
        else:
            self._kept = self._kept or self._collect(probes, probes, self.folders, self.timeout_s)
            found = self._kept
        return check(Snapshot({node.node: node for node in found}, self.plan), chosen)

    def run(self, argv: Sequence[str], limit_s: int) -> list[Answer]:
        """Runs one read-only command on every node. A command that no rule allows is refused here, too."""
        why = refusal(argv)
        if why is not None:
            return [Answer("", None, f"refused: {why}")]
        with tempfile.TemporaryDirectory(prefix="ncdiag-playbook-") as folder:
            Path(folder, "playbook_command.py").write_text(command_probe(argv, limit_s), encoding="utf-8")
            probes = load([folder])
            found = self._collect(probes, probes.chosen(["playbook-command"]), [folder], limit_s + 10.0)
        return [answer_of(node) for node in found]

    def _collect(self, probes: ProbeSet, chosen: ProbeSet, folders: Sequence[str], limit_s: float) -> list[NodeFacts]:
        request = Request(
            probes.sources(chosen),
            tuple(folders),
            self.python,
            self.pid,
            self.environment(),
            self.plan.model,
            limit_s,
        )
        fleet = open_fleet(self.nodes, ssh_user=self.ssh_user, ssh_config=self.ssh_config)
        return fleet.collect(request, lambda node, probe: None)


def command_probe(argv: Sequence[str], limit_s: int) -> str:
    """The source of a probe that runs one command, so that a command travels to nodes as every probe does."""
    return _COMMAND_PROBE.format(argv=list(argv), limit_s=limit_s)


def answer_of(node: NodeFacts) -> Answer:
    """What a node's facts say about the command."""
    facts = node.facts.get("playbook-command")
    if facts is None:
        why = node.unreachable or node.errors.get("playbook-command") or "there is no machine behind a snapshot"
        return Answer(node.node, None, why)
    return Answer(node.node, int(facts["rc"]), facts["out"] + facts["err"])
