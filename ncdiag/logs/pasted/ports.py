"""Attempts to connect (nc, ncat, nmap, curl, /dev/tcp) and NetworkPolicies: a host of which one port answers and another one is silent has a filter before it.

Sources: OpenBSD's, traditional and busybox's nc, ncat and nmap 7, curl 7 and 8, bash; `kubectl get netpol -o yaml` and `describe netpol`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.model import Evidence

_TRIED = re.compile(
    r"[Cc]onnect(?:ed|ion)? to (?P<host>[\w.:-]{1,80}?)(?: \([\w.:]{1,60}\))?(?: port |[ :])(?P<port>\d{1,5})\b"
    r"|(?P<host2>[\w.-]{1,80}) \([\w.-]{1,80}\) \[(?P<port2>\d{1,5})\]|\((?P<host3>\d+\.\d+\.\d+\.\d+):(?P<port3>\d{1,5})\)|/dev/tcp/(?P<host4>[\w.-]{1,80})/(?P<port4>\d{1,5})"
)
_ANSWERS = re.compile(r"succeeded|\bopen\b|Connected to|refused|Couldn't connect to server")
_SILENT = re.compile(r"(?i)timed? ?out|timeout")
_TOOL = re.compile(
    r"\bnc: |\bNcat: |\bcurl: |\* (?:Connected|Failed|connect) |/dev/tcp/| port \[|\(UNKNOWN\) \[|:\d+\) open$|^telnet: "
)
_ASKS = re.compile(
    r"(?:^|[$#] )(?:\w+ \d+ )?(?:telnet|nc|ncat|netcat)(?: -\S+(?: \d+(?= ))?)* (?P<host>[\w.:-]{1,80}) (?P<port>\d{1,5})\s*$"
)
_STORE = re.compile(
    r"(?:distributed_init_method=|init_method=[\"']?|rdzv[-_]endpoint[= ]|MASTER_ADDR=|master[-_]addr[= ])[\"']?(?:tcp://)?(?P<host>\d+\.\d+\.\d+\.\d+)(?::(?P<port>\d{1,5}))?"
)
_SCANNED = re.compile(r"Nmap scan report for (?P<host>\S+)(?: \((?P<address>[\d.]+)\))?")
_STATE = re.compile(r"^(?P<port>\d{1,5})/tcp +(?P<state>open|closed|filtered)\b")
_POLICY = re.compile(r"^\s*(?:- )?kind: (?:Cilium|Calico)?(?:Global|Clusterwide)?NetworkPolicy\b")
_OPEN = re.compile(
    r"^\s*- \{\}\s*$|endPort: (?:6\d{4})|To Port: <any>|^\s*(?:in|e)gress: \[\{\}\]|\(traffic allowed to all ports\)"
)
_PORT = re.compile(r"(?:^|\s)(?:- )?port: \"?(?P<port>\d{1,5})\b|To Port: (?P<port2>\d{1,5})/")
_SIDES = re.compile(r"^\s*- (?:from|to):")
HOSTS_LIMIT = 1000


class Ports:
    """All attempts to connect, and what policies let in."""

    triggers = ("nc: ", "Ncat: ", "curl: (", "* Connected", "* connect to", "/dev/tcp/", " port [", "(UNKNOWN) [", ") open", "Nmap scan report", "/tcp ", "NetworkPolicy", "telnet ", " nc ", "ncat ", "netcat ", "init_method=", "rdzv", "MASTER_ADDR=", "master_addr", "master-addr", "isolated for ingress", "Allowing ingress traffic")  # fmt: skip

    def __init__(self) -> None:
        self._answers: dict[str, tuple[str, Line]] = {}
        """Host -> a port of it that answered, and where that is seen."""
        self._silent: dict[str, tuple[str, Line]] = {}
        self._asked: tuple[str, str] | None = None
        """Host and port of the command whose answer is read."""
        self._stores: dict[str, tuple[str, Line]] = {}
        """Host -> port of the ranks' store, and where that is said."""
        self._scanned = ""
        self._policy: Line | None = None
        self._first: Line | None = None
        self._let_in: list[str] = []
        self._rules = self._with_ports = 0
        self._open = False

    def take(self, line: Line) -> bool:
        text = line.text
        scanned = _SCANNED.search(text)
        if scanned:
            self._scanned = scanned["address"] or scanned["host"]
            return True
        state = _STATE.match(text) if self._scanned else None
        if state:
            kept = self._silent if state["state"] == "filtered" else self._answers
            kept.setdefault(self._scanned, (state["port"], line))
            return True
        store = _STORE.search(text)
        if store and len(self._stores) < HOSTS_LIMIT:
            self._stores.setdefault(store["host"], (store["port"] or "of its store", line))
        self._try(line)
        asks = _ASKS.search(text)
        if asks:
            self._asked = asks["host"], asks["port"]
        return self._take_policy(line) or self._asked is not None

    def _try(self, line: Line) -> None:
        asked, self._asked = self._asked, None
        if asked and re.match(r"Connected to |Escape character|Trying ", line.text):
            self._asked = asked
            if line.text.startswith("Connected to "):
                self._answers.setdefault(asked[0], (asked[1], line))
            return
        tried = _TRIED.search(line.text) if _TOOL.search(line.text) else None
        if tried is None or len(self._answers) + len(self._silent) >= HOSTS_LIMIT:
            return
        host, port = (
            next((tried[f"{key}{n}"] for n in ("", 2, 3, 4) if tried[f"{key}{n}"]), "") for key in ("host", "port")
        )
        if _SILENT.search(line.text):
            self._silent.setdefault(host, (port, line))
        elif _ANSWERS.search(line.text):
            self._answers.setdefault(host, (port, line))

    def _take_policy(self, line: Line) -> bool:
        """Whether the line belongs to a policy: read as text, as often only a part of the document is there."""
        text = line.text
        if _POLICY.match(text) or "isolated for ingress" in text or "Allowing ingress traffic:" in text:
            self._policy = line
            self._first = self._first or line
        if self._policy is None or self._policy.source != line.source:
            return False
        if not text or text[0] in "$#" or text.startswith("kind: List"):
            self._policy = None
            return False
        port = _PORT.search(text)
        if port:
            self._let_in.append(port["port"] or port["port2"])
        self._rules += _SIDES.match(text) is not None
        self._with_ports += re.match(r"^\s*(?:- )?(?:ports|toPorts):", text) is not None
        self._open = self._open or _OPEN.search(text) is not None
        return True

    def end(self, source: str) -> None:
        self._scanned, self._policy, self._asked = "", None, None

    def half_open(self, signals: Sequence[Signal]) -> Iterator[Signal]:
        """A job's connection that was not answered, to a host of which another port answers."""
        for signal in signals:
            host = str(signal.where.get("peer", ""))
            item = signal.evidence[0] if signal.evidence else None
            known = self._reached(host, item.text) if item is not None else None
            if signal.says is not Says.SYMPTOM or item is None or known is None:
                continue
            port = re.search(re.escape(host) + r"\]?(?:<|:|, )(?P<port>\d{1,5})\b", item.text)
            answers, seen = known
            if port is not None and port["port"] != answers and _SILENT.search(item.text):
                yield _dropped(host, answers, port["port"], [item, seen.evidence()], signal.order)
                return

    def _reached(self, host: str, text: str) -> tuple[str, Line] | None:
        """A port of a host that answers. Whoever dials as NCCL has got its id from the ranks' store, and so reached that."""
        dials = any(word in text for word in ("NCCL", "socketPollConnect", "socketStartConnect"))
        return self._answers.get(host) or (self._stores.get(host) if dials else None)

    def signals(self) -> Iterator[Signal]:
        for host in self._silent:
            if host in self._answers:
                silent, at = self._silent[host]
                answers, seen = self._answers[host]
                yield _dropped(host, answers, silent, [at.evidence(), seen.evidence()], at.order)
                break
        if self._first is not None and not self._open and self._rules <= self._with_ports:
            ports = ", ".join(dict.fromkeys(self._let_in)) or "none"
            yield Signal(
                "bootstrap-blocked-firewall",
                Says.HINT,
                f"a NetworkPolicy isolates pods here and lets in only some ports ({ports}); NCCL and gloo listen at any",
                [self._first.evidence()],
                condition=True,
                order=self._first.order,
                remedy="a NetworkPolicy that lets the job's pods reach each other at every port (from: podSelector of the job, no ports)",
            )


def _dropped(host: str, answers: str, silent: str, evidence: list[Evidence], order: float) -> Signal:
    return Signal(
        "bootstrap-blocked-firewall",
        Says.STRONG,
        f"{host} answers at port {answers} and is silent at port {silent}: something between drops what goes to other ports",
        evidence,
        {"peer": f"{host}:{silent}"},
        order=order,
        remedy="open all TCP ports between the nodes (NCCL and gloo use random ones): opening the master port alone is not enough",
    )
