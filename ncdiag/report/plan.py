"""The text view of a plan: what to do first, then why, then the layouts, then the lines to type."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag.nodeset import counted
from ncdiag.report.console import plain
from ncdiag.report.wrapped import columns

GIB = 2**30
WIDTH = 100


def render(plan: Mapping[str, Any]) -> str:
    """Plain text of at most 100 columns (command lines are never broken). Takes the dict of `sizing.plan.make_plan`."""
    blocks = [
        _headline(plan),
        _bullets("Why", plan["recommended"]["reasons"]),
        _would_fit(plan["recommended"]),
        _table(plan),
        _commands(plan),
        _bullets("Mind", plan["warnings"]),
        _bullets("Model", _model(plan["model"])),
        _bullets("Assumed, not measured", plan["assumptions"]),
    ]
    return plain("\n\n".join(block for block in blocks if block)) + "\n"


def _headline(plan: Mapping[str, Any]) -> str:
    best, cluster = plan["recommended"], plan["cluster"]
    where = f"{cluster['nodes']} x {cluster['gpus_per_node']} {cluster['gpu']}"
    if best["fits"] is None:
        return _wrapped(f"NOT KNOWN whether it fits on {where}.", "")
    if best["tp"] is None:
        return _wrapped(f"DOES NOT FIT on {where} at {best['max_model_len']:,} tokens.", "")
    shape = _shape(best) + (f" (EP {best['ep']})" if best["ep"] > 1 else "")
    span = (
        f"on {counted(best['gpus'], 'GPU')} of one node"
        if best["nodes"] == 1
        else (f"over {best['nodes']} nodes, {best['gpus']} GPUs")
    )
    copies = f", {best['replicas']} replicas on {where}" if best["replicas"] > 1 else f" ({where})"
    return _wrapped(f"USE {shape} {span}{copies}, --max-model-len {best['max_model_len']}.", "")


def _would_fit(best: Mapping[str, Any]) -> str:
    """What would have to change where nothing fits, the smallest change first."""
    if best.get("would_fit") is None:
        return ""
    lines = [
        f"{change['change']}: {_shape(change)} on {counted(change['gpus'], 'GPU')}{_copies(change)}; {change['why']}"
        for change in best["would_fit"]
    ]
    return _bullets(
        "Would fit, each by itself",
        lines
        or [
            "nothing that was tried: shorter requests, fewer at once, a smaller cache, quantised weights, more GPUs of this kind"
        ],
    )


def _copies(one: Mapping[str, Any]) -> str:
    return f", {one['replicas']} replicas" if one["replicas"] > 1 else ""


def _shape(one: Mapping[str, Any]) -> str:
    return f"TP {one['tp']}" + "".join(f" x {name.upper()} {one[name]}" for name in ("pp", "dp") if one[name] > 1)


def _model(model: Mapping[str, Any]) -> list[str]:
    active = f", {_count(model['parameters_active'])} active a token" if model.get("parameters_active") else ""
    name = f"{model['architecture']}: {_count(model['parameters'])} parameters{active}, {model.get('dtype', 'dtype not known')}"
    name += f", {model['quantization']}" if model.get("quantization", "none") != "none" else ""
    size = "not known" if model["weights_bytes"] is None else _size(model["weights_bytes"])
    out = [name, f"weights {size} ({model['source']})"]
    if model["kv_bytes_per_token"] is None:
        return [*out, "KV cache not known"]
    cache = f"KV cache {model['kv_bytes_per_token'] / 1024:.1f} KiB a token over all layers"
    if model.get("state_bytes_per_sequence"):
        cache += f", states {model['state_bytes_per_sequence'] / 2**20:.1f} MiB a sequence"
    return [*out, cache]


def _table(plan: Mapping[str, Any]) -> str:
    rows: list[tuple[str, ...]] = [
        ("", "TP", "PP", "DP", "GPUs", "replicas", "weights/GPU", "KV pool/GPU", "KV tokens", "fits")
    ]
    best = plan["recommended"]
    for layout in plan["layouts"]:
        chosen = all(layout[key] == best.get(key) for key in ("tp", "pp", "dp"))
        rows.append(
            (
                ">" if chosen else "",
                *(str(layout.get(key, "")) for key in ("tp", "pp", "dp", "gpus", "replicas")),
                _size(layout["weights_bytes_per_gpu"]),
                _size(layout["kv_pool_bytes_per_gpu"]) if "kv_pool_bytes_per_gpu" in layout else "?",
                "?" if layout["kv_tokens"] is None else f"{layout['kv_tokens']:,}",
                {True: "yes", False: "no"}.get(layout["fits"], "?"),
            )
        )
    if len(rows) == 1:
        return ""
    rows = [*zip(*(column for column in zip(*rows, strict=True) if _tells(column)), strict=True)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "Layouts\n" + "\n".join(
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _tells(column: Sequence[str]) -> bool:
    """Not a parallel size that is 1 in every layout."""
    return column[0] not in ("PP", "DP") or any(cell != "1" for cell in column[1:])


def _commands(plan: Mapping[str, Any]) -> str:
    lines = list(plan["commands"])
    quantised = plan["recommended"].get("quantise_first")
    if quantised and quantised["command"]:
        lines += [f"# {'or, ' if lines else ''}quantised at load to FP8, on one node:", quantised["command"]]
    return "Run\n" + "\n".join("  " + line for line in lines) if lines else ""


def _bullets(title: str, lines: Sequence[str]) -> str:
    return title + "\n" + "\n".join(_wrapped(line, "  - ") for line in lines) if lines else ""


def _wrapped(line: str, indent: str) -> str:
    return textwrap.fill(
        line,
        min(columns(), WIDTH),
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _size(number: int) -> str:
    return f"{number / GIB:.1f} GiB" if number >= GIB / 10 or not number else f"{number / 2**20:.1f} MiB"


def _count(number: int | None) -> str:
    if number is None:
        return "unknown"
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if number >= size:
            return f"{number / size:.2f} {letter}"
    return str(number)
