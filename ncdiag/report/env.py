"""The settings of a cluster as a shell script, docker options, Kubernetes and Ray YAML or JSON; each with its reason."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from ncdiag import redact
from ncdiag.model import SCHEMA, Finding, Snapshot
from ncdiag.nccl.advice import ALL_NODES, Advice
from ncdiag.nccl.recommend import NEEDS, for_node, to_unset
from ncdiag.report.plain import one_line, plain
from ncdiag.report.run import of_snapshot
from ncdiag.report.wrapped import columns

WIDTH = 110
"""Columns of a comment, where the terminal has so many."""
EMPTY = "Nothing has to be set: NCCL, gloo and vLLM find everything on these nodes by themselves."
EMPTY_ONE = "Nothing has to be set for this node alone; for an engine over several, name them all (--nodes)."
EMPTY_UNREAD = "Nothing has to be set by what could be read."
EMPTY_AMISS = "Nothing else was derived: first mend what is named above."


def unread(snapshot: Snapshot) -> list[str]:
    """What could not be looked at, in a sentence each; settings that rest on it are missing."""
    said = [
        f"{name} gave nothing ({node.unreachable}): nothing is known of it"
        for name, node in snapshot.nodes.items()
        if node.unreachable
    ]
    for name, node in snapshot.nodes.items():
        if not node.unreachable:
            said += [
                f"{probe} of {name} could not be read: {node.errors[probe]}" for probe in NEEDS if probe in node.errors
            ]
            missing = [probe for probe in NEEDS if probe not in node.facts and probe not in node.errors]
            said += [f"{name} has no facts of {', '.join(missing)}"] if missing else []
    return said


def as_shell(snapshot: Snapshot, advice: Sequence[Advice], amiss: Sequence[Finding] = ()) -> str:
    """One script for all nodes: what is for one node only stands in a `case` of its host name."""
    lines = ["# Environment of the engine on " + _nodes(snapshot), *_before(snapshot, amiss)]
    for one in _sure(advice):
        if one.node == ALL_NODES:
            lines += ["", *_reason(one), f"export {one.name}={_quoted(one)}"]
    lines += _cases(snapshot, [one for one in _sure(advice) if one.node != ALL_NODES])
    for name, ones in _superfluous(advice):
        lines += ["", *_reason(ones[0], _where(snapshot, ones)), f"unset {name}"]
    return _ended(snapshot, lines, advice, amiss, "export {}={}")


def _cases(snapshot: Snapshot, single: list[Advice]) -> list[str]:
    """The settings that differ between nodes; by comment only where two nodes call themselves the same."""
    if not single:
        return []
    names = {node: str(facts.meta.get("hostname") or node) for node, facts in snapshot.nodes.items()}
    by_name = len(set(names.values())) == len(names)
    lines = ["", *_reasons(single)]
    lines += ['case "$(uname -n)" in'] if by_name else ["# these nodes share a host name; put on each what is its own"]
    for node in snapshot.nodes:
        mine = [f"export {one.name}={_quoted(one)}" for one in single if one.node == node]
        if mine and by_name:
            lines += [f"{shlex.quote(one_line(names[node]))})", *("    " + line for line in mine), "    ;;"]
        elif mine:
            lines += [f"# {one_line(node)}: {line}" for line in mine]
    return [*lines, "esac"] if by_name else lines


def as_docker(snapshot: Snapshot, advice: Sequence[Advice], amiss: Sequence[Finding] = ()) -> str:
    """One `docker run` a node; nodes that need the same share it."""
    lines = [*_before(snapshot, amiss), *_reasons(_sure(advice))]
    alike: dict[str, list[str]] = {}
    for node in snapshot.nodes:
        options = [f"--env {name}={shlex.quote(plain(value))}" for name, value in for_node(list(advice), node).items()]
        alike.setdefault(" \\\n    ".join(["docker run", *options]), []).append(node)
    for text, nodes in alike.items():
        lines += ["", "# on " + ", ".join(map(one_line, nodes)), text + " …"]
    for name, ones in _superfluous(advice):
        lines += [
            "",
            *_reason(ones[0], _where(snapshot, ones)),
            f"# leave {name} out; if the image sets it, start the engine with: env -u {name} vllm serve …",
        ]
    return _ended(snapshot, lines, advice, amiss, "--env {}={}")


def as_kubernetes(snapshot: Snapshot, advice: Sequence[Advice], amiss: Sequence[Finding] = ()) -> str:
    """The `env:` list of a container. One template serves all pods: what differs between nodes is a comment, or the pod's own address."""
    lines = [*_before(snapshot, amiss), "env:"]
    for one in _sure(advice):
        if one.node == ALL_NODES:
            lines += [*_reason(one), f"- name: {one.name}", f"  value: {json.dumps(plain(one.value))}"]
    single = [one for one in _sure(advice) if one.node != ALL_NODES]
    for name in dict.fromkeys(one.name for one in single):
        mine = [one for one in single if one.name == name]
        lines += _reason(mine[0])
        values = "; ".join(f"{one_line(one.node)}: {one_line(one.value)}" for one in mine)
        if name == "VLLM_HOST_IP":
            lines += [
                f"- name: {name}",
                f"  # must come out as {values}",
                "  valueFrom:",
                "    fieldRef:",
                "      fieldPath: status.podIP",
            ]
        else:
            lines += [
                f"# {name} differs between nodes ({values}):",
                "# set it in the container's start script (ncdiag env --as shell)",
            ]
    for name, ones in _superfluous(advice):
        lines += [*_reason(ones[0], _where(snapshot, ones)), f"# take {name} out of the pod and its image"]
    if lines[-1] == "env:":
        lines[-1] = "env: []"
    return _ended(snapshot, lines, advice, amiss, "{}={}")


def as_ray(snapshot: Snapshot, advice: Sequence[Advice], amiss: Sequence[Finding] = ()) -> str:
    """A runtime_env (YAML). It is the same for every worker: what is one node's own belongs before its `ray start`."""
    lines = [
        *_comment("ray job submit --runtime-env FILE …, or runtime_env=yaml.safe_load(…) of ray.init"),
        *_before(snapshot, amiss),
        "env_vars:",
    ]
    for one in _sure(advice):
        if one.node == ALL_NODES:
            lines += [*("  " + line for line in _reason(one)), f"  {one.name}: {json.dumps(plain(one.value))}"]
    if lines[-1] == "env_vars:":
        lines[-1] = "env_vars: {}"
    single = [one for one in _sure(advice) if one.node != ALL_NODES]
    if single:
        lines += [
            *_comment(
                "Before `ray start` on each node, not in the runtime_env (it would give all nodes the same value):"
            ),
            *_reasons(single),
        ]
        lines += [f"# {one_line(one.node)}: export {one.name}={_quoted(one)}" for one in single]
    for name, ones in _superfluous(advice):
        lines += [*_reason(ones[0], _where(snapshot, ones)), f"# before `ray start`: unset {name}"]
    return _ended(snapshot, lines, advice, amiss, "{}={}")


def as_json(snapshot: Snapshot, advice: Sequence[Advice], findings: Sequence[Finding] | None, code: int) -> str:
    """`run`, `settings` with reasons, and `nodes`: what to set and unset on each; `findings` after a comparison."""
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "command": "env",
        "run": of_snapshot(snapshot).as_dict(),
        "nodes": list(snapshot.nodes),
        "settings": [one.as_dict() for one in advice],
        "environment": {
            node: {"set": for_node(list(advice), node), "unset": to_unset(list(advice), node)}
            for node in snapshot.nodes
        },
        "unread": unread(snapshot),
    }
    if findings is not None:
        data["findings"] = [finding.as_dict() for finding in findings]
    return json.dumps(redact.data({**data, "exit": int(code)}), indent=1)


FORMS = {"shell": as_shell, "docker": as_docker, "kubernetes": as_kubernetes, "ray": as_ray}


def _sure(advice: Sequence[Advice]) -> list[Advice]:
    return [one for one in advice if one.sure and one.value is not None]


def _superfluous(advice: Sequence[Advice]) -> Iterator[tuple[str, list[Advice]]]:
    ones = [one for one in advice if one.value is None and one.sure]
    for name in dict.fromkeys(one.name for one in ones):
        yield name, [one for one in ones if one.name == name]


def _ended(snapshot: Snapshot, lines: list[str], advice: Sequence[Advice], amiss: Sequence[Finding], form: str) -> str:
    """With what is worth a try, and a word where nothing is needed."""
    if not any(one.sure for one in advice):
        lines += _comment(_nothing(snapshot, amiss))
    for one in advice:
        if not one.sure:
            when = one.when.capitalize() or f"Worth a try{_on(one)}, to be measured"
            what = "leave it out" if one.value is None else form.format(one.name, _quoted(one))
            lines += ["", *_comment(f"{when}: {one.why} (from {one.derived_from})"), f"# {one.name}: {what}"]
    return "\n".join(lines).strip("\n") + "\n"


def _nothing(snapshot: Snapshot, amiss: Sequence[Finding]) -> str:
    if amiss:
        return EMPTY_AMISS
    if unread(snapshot):
        return EMPTY_UNREAD
    return EMPTY if len(snapshot.nodes) > 1 else EMPTY_ONE


def _on(one: Advice) -> str:
    return "" if one.node == ALL_NODES else f" on {one_line(one.node)}"


def _reason(one: Advice, where: str = "") -> list[str]:
    return _comment(f"{where}{one.why}. Derived from: {one.derived_from}")


def _reasons(advice: Sequence[Advice]) -> list[str]:
    """Each setting's reason once, however many nodes have it."""
    said: dict[str, str] = {}
    for one in advice:
        said.setdefault(one.name, f"{one.name}: {one.why}. Derived from: {one.derived_from}")
    return [line for text in said.values() for line in _comment(text)]


def _where(snapshot: Snapshot, ones: Sequence[Advice]) -> str:
    if len(ones) == len(snapshot.nodes) or any(one.node == ALL_NODES for one in ones):
        return ""
    return "on " + ", ".join(one_line(one.node) for one in ones) + ": "


def _comment(text: str) -> list[str]:
    return textwrap.wrap(one_line(text), _width(), initial_indent="# ", subsequent_indent="# ", break_long_words=False)


def _width() -> int:
    return min(columns() - 2, WIDTH)  # 2: the indentation of a list


def _before(snapshot: Snapshot, amiss: Sequence[Finding]) -> list[str]:
    """What was not looked at, and what is wrong all the same, each with the way out."""
    said = ["NOT LOOKED AT: " + text for text in unread(snapshot)]
    for one in amiss:
        where = f" on {one.where['node']}" if len(snapshot.nodes) > 1 and "node" in one.where else ""
        said.append(f"STILL WRONG{where} ({one.probe}): {one.summary} → {one.remedy}")
    return [line for text in said for line in _comment(text)]


def _quoted(one: Advice) -> str:
    return shlex.quote(one_line(one.value))


def _nodes(snapshot: Snapshot) -> str:
    names = ", ".join(one_line(node) for node in snapshot.nodes)
    return names if len(names) < _width() - 40 else f"{len(snapshot.nodes)} nodes"
