"""Captures into fixtures: condense.py FOLDER… writes tests/stacks/gpu (bundles, RAS, recorder dumps), tests/logs/gpu (logs, topologies), truth beside both.

FOLDER holds `nccl` and `vllm` as the drivers left them; of a case in several folders the last one counts, and cases that are in none stay. What names the machine or the place
where it ran is replaced; recorder dumps of healthy runs are cut to their last entries.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

import cases
import vllm_captures
import yaml
from captures import ROOT

STACKS, LOGS = ROOT / "tests" / "stacks" / "gpu", ROOT / "tests" / "logs" / "gpu"
LAST_ENTRIES = 40
RECORDERS = ("skipped-collective", "loader", "stopped-rank-of-four")
"""Cases of which torch's own recorder files are kept."""
_PLACES = (
    (re.compile(r"/[\w./-]*/benchmarks/gpu(?=/)"), "/opt/job"),
    (re.compile(r"/tmp/gl/src"), "/opt/job"),
    (re.compile(r"/tmp/site"), "/opt/site"),
    (re.compile(r"/tmp/lab-models"), "/models"),
    (re.compile(r"/opt/torch/\.venv"), "/opt/venv"),
    (
        re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
        "GPU-00000000-0000-0000-0000-000000000000",
    ),
)
_LAB_ENDS = re.compile(r"NCCL WARN (?:socketProgress|.*(?:Connection (?:closed|reset)|Broken pipe))")


_LABS_OWN = re.compile(r"^.*Unknown vLLM environment variable detected: VLLM_(?:PROGRAM|CASES|MODEL)\n", re.M)


def neutral(text: str, case: str) -> str:
    text = re.sub(rf"/[\w./-]*/{re.escape(case)}(?=/)", "/var/log/job", _LABS_OWN.sub("", text))
    for pattern, instead in _PLACES:
        text = pattern.sub(instead, text)
    return text


def packed(raw: bytes) -> bytes:
    """The same bytes every time."""
    return gzip.compress(raw, 9, mtime=0)


def bundle(source: Path, target: Path, healthy: bool) -> None:
    """A bundle again, with other names and places."""
    buffer = io.BytesIO()
    with tarfile.open(source, "r:gz") as old, tarfile.open(fileobj=buffer, mode="w") as new:
        for member in old.getmembers():
            content = old.extractfile(member)
            assert content is not None
            text = neutral(content.read().decode(), target.parent.name)
            if member.name.endswith("states.json"):
                text = json.dumps(_without_labs_own(json.loads(text)))
            if member.name.endswith("META.json"):
                meta = json.loads(text)
                meta["node"] = target.name.split(".")[0].split("-")[0]
                text = json.dumps(meta, indent=1)
            elif member.name.endswith("flight.json"):
                text = json.dumps(_cut(json.loads(text)) if healthy else json.loads(text))
            elif member.name.endswith("verdict.json"):
                continue  # what an older ncdiag concluded
            kept = tarfile.TarInfo(member.name)
            raw = text.encode()
            kept.size, kept.mode = len(raw), 0o600
            new.addfile(kept, io.BytesIO(raw))
    target.write_bytes(packed(buffer.getvalue()))


def _without_labs_own(states: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for state in states:
        state["log_tail"] = [line for line in state["log_tail"] if not _LABS_OWN.match(line + "\n")]
        for name in ("VLLM_PROGRAM", "VLLM_CASES", "VLLM_MODEL"):
            state["settings"].pop(name, None)
    return states


def _cut(flight: dict[str, Any]) -> dict[str, Any]:
    return {rank: {**dump, "entries": dump.get("entries", [])[-LAST_ENTRIES:]} for rank, dump in flight.items()}


def log(source: Path, target: Path, killed: bool) -> None:
    """`killed`: it ran until the lab ended it, and its log was not kept before: what it says of its peers' ends then is the lab's doing."""
    lines = neutral(source.read_text(errors="replace"), target.parent.name).splitlines(keepends=True)
    end = next((number for number, line in enumerate(lines) if killed and _LAB_ENDS.search(line)), len(lines))
    if end:
        target.write_bytes(packed("".join(lines[:end]).encode()))


def condense(folder: Path, case: Any) -> None:
    stacks, logs = STACKS / folder.name, LOGS / folder.name
    for made in (stacks, logs):
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
    result = json.loads((folder / "result.json").read_text())
    healthy = case.causes[:1] == ("healthy",)
    for source in sorted(folder.glob("*.tar.gz")):
        bundle(source, stacks / source.name, healthy)
    for kind in ("json", "txt"):
        for source in sorted(folder.glob(f"node0*/ras.{kind}"))[-1:]:
            if not source.read_bytes().startswith(b"# "):
                (stacks / f"ras.{kind}").write_bytes(source.read_bytes())
    for source in sorted(folder.glob("recorder_*"))[:4]:
        if folder.name in RECORDERS:
            (stacks / source.name).write_bytes(source.read_bytes().replace(b"/tmp/gl/src", b"/opt/job/wd"))
    ended = result.get("ended", {})
    for source in sorted([*folder.glob("*.log"), *folder.glob("nccl.*.log")]):
        key = re.search(r"(?:rank|node)(\d+)\.log$", source.name)
        killed = key is not None and ended.get(key.group(1)) is None and not result.get("logs_kept")
        log(source, logs / f"{source.name}.gz", killed)
    for kind in ("topology", "graph"):
        for source in sorted(folder.glob(f"{kind}.*.xml"))[:1]:
            (logs / f"{kind}.xml").write_bytes(source.read_bytes())
    for empty in (stacks, logs):
        if not any(empty.iterdir()):
            empty.rmdir()


def truth(case: Any, result: dict[str, Any]) -> dict[str, Any]:
    return {
        "done": case.done,
        "causes": list(case.causes),
        "culprits": list(case.culprits),
        "stage": case.stage,
        "one_host": list(case.one_host),
        "logs": list(case.causes if case.logs is None else case.logs),
        "decidable": case.decidable,
        "seconds": {name: dump.get("seconds") for name, dump in sorted(result["dumps"].items())},
    }


def main(folders: list[Path]) -> int:
    known = {case.name: case for case in (*cases.CASES, *vllm_captures.CASES)}
    chosen: dict[str, Path] = {}
    for folder in folders:
        for result in sorted(folder.glob("*/*/result.json")):
            if result.parent.name in known:
                chosen[result.parent.name] = result.parent
    truths = {}
    for name, folder in sorted(chosen.items()):
        condense(folder, known[name])
        truths[name] = truth(known[name], json.loads((folder / "result.json").read_text()))
    for place, keys in (
        (STACKS, ("done", "causes", "culprits", "stage", "one_host", "seconds")),
        (LOGS, ("done", "logs", "decidable")),
    ):
        file = place / "truth.yaml"
        before = yaml.safe_load(file.read_text()) if file.exists() else {}
        now = {name: {key: said[key] for key in keys} for name, said in truths.items()}
        kept = {name: said for name, said in sorted({**before, **now}.items()) if (place / name).is_dir()}
        file.write_text(yaml.safe_dump(kept, sort_keys=False, width=160))
        print(
            f"{place}: {len(kept)} cases, {sum(path.stat().st_size for path in place.rglob('*') if path.is_file()) / 1e6:.1f} MB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]]))
