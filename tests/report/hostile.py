"""Names that try to be more than names, in every field of a result."""

from __future__ import annotations

from ncdiag.hang.verdict import Fold, Printed, RankVerdict, Verdict, Wait
from ncdiag.model import Cause, Evidence, Finding, Status
from ncdiag.report.result import Event, Fact, Lane, Pair, Result, Span, Step
from ncdiag.report.run import Run
from tests.report.samples import machine

PAYLOADS = {
    "script": "<script>alert(1)</script>",
    "handler": '"><img src=x onerror=alert(1)>',
    "quote": "' onmouseover='alert(1)' x='",
    "svg": "</svg><svg onload=alert(1)><animate onbegin=alert(1)>",
    "title": "</title><script>alert(1)</script>",
    "style": "</style><style>*{display:none}</style>",
    "css": 'x;background:url(http://192.0.2.1/leak)}/*"',
    "link": '<a href="javascript:alert(1)">here</a>',
    "frame": '<iframe src="http://192.0.2.1/"></iframe><base href="http://192.0.2.1/">',
    "meta": '<meta http-equiv="refresh" content="0;url=http://192.0.2.1/">',
    "template": "{{ 7*7 }}{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "comment": "<!-- --!> ]]> <![CDATA[ <? ?> &lt; &#x3c;script&#x3e;",
    "entity": "&amp;&quot;&notanentity;&#0;",
    "escape": "\x1b[2J\x1b]0;owned\x07\x1b[31mfail\x9b31m",
    "control": "a\x00b\x08c\x0bd\x0ce\rf\x7fg\x85h",
    "direction": "gpu\u202e10upg\u202c \u2066x\u2069 \u200f\u061c",
    "hidden": "gpu\u200b01\ufeff\U000e0041",
    "surrogate": "\ud800 \udfff \ufffe \uffff",
    "newline": 'up\n# HELP fake x\nfake{a="b"} 1\nok      all is well',
    "label": '\\"} 1\nncdiag_fake{x="',
    "markup": "[bold red]not markup[/] [link=http://192.0.2.1]x[/link]",
    "long": "x" * 4000,
    "set": "gpu[01-99999999999999999999],,[[[",
    "secret": "HF_TOKEN=hf_aBcD1234aBcD1234aBcD",
}


def result(payload: str) -> Result:
    """A result with `payload` wherever a text may stand."""
    p = payload
    where = {"node": p, "device": p, "peer": p, p: p}
    findings = [Finding(status, p, where, {p: p}, [p], p, p, p, p) for status in Status]
    cause = Cause(p, "sure", p, {"node": p, "rank": p}, [Evidence(p, p, 3)], [Evidence(p, p)], p)
    rank = RankVerdict(p, 1, p, None, p, p, 3.0, p, p, p, p, 4.0, True, p)
    verdict = Verdict(
        p,
        p,
        [cause],
        [rank],
        [Wait(p, p, p)],
        [Fold([p] * 20, [p, f"{p} ({p}:1)"], True)],
        [{"name": p, "size": p, "stages": {p: p}, "culprits": [p]}],
        [p],
    )
    made = Result.of_verdict(p, verdict, [p], 1, Run(p, p, p))
    made.printed = [Printed(p, p, [p, p])]
    made.nodes, made.findings, made.source = [p], findings, p
    made.lanes, made.events = [Lane(p, 0, p, p, (Span(p, 0.0, 2.0), Span("ready", 2.0, 3.0)), 3.0)], [Event(1.0, p, p)]
    made.pairs, made.steps, made.facts = (
        [Pair(p, p + "2", 3.0, 4.0, p), Pair(p, "b", None, None, p)],
        [Step(p, 8, True, 1.0, None, None, p)],
        [Fact(p, p, p)],
    )
    made.machines = [_machine(p)]
    return made


def _machine(p: str) -> dict[str, object]:
    """A real shape whose names are all the payload."""
    shown = machine(p, [p])
    for gpu in shown["gpus"]:
        gpu.update(
            label=p,
            busid=p,
            nics=[p],
            distance={p: p},
            path={p: p},
            gpudirect={p: {"receive": True, "send": False, "reasons": [p], "unproven": [p]}},
        )
    for nic in shown["nics"]:
        nic.update(label=p, name=p, busid=p)
    for cpu in shown["tree"]:
        cpu["nets"] = [p]
        for pci in cpu["pci"]:
            pci.update(busid=p, link=p, link_max=p)
            for child in pci["pci"]:
                child.update(
                    busid=p, link=p, link_max=p + "x", gpus=[p] * len(child["gpus"]), nets=[p] * len(child["nets"])
                )
    shown.update(remarks=[p], unused_nics=[p], nccl_version=p)
    return shown
