"""Makes the fixtures of `lab/`: a dozen of the lab's real vLLM runs, as rank states without what no rule reads.

python -m tests.hang.condense ../shared/lab/vllm-cpu/evidence
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ncdiag.model import RankState
from tests.hang import evidence

FIXTURES = Path(__file__).parent / "lab"
FRAMES = 45
"""Frames that are kept, from the innermost."""
RUNS: dict[str, float | None] = {
    "F-f01c_master_wrong_port": None,
    "F-f01d_master_unroutable": None,
    "F-f02a_ifname_missing": None,
    "F-f02i_ifname_low_one": None,
    "F-f03a_hostip_lo_node0": None,
    "F-f04a_missing_node": None,
    "F-f05a_sigstop_load_rank1": None,
    "F-f06a_model_path_missing": None,
    "F-f08a_slow_disk": None,
    "F-f14_link_down_in_load": None,
    "F-r07_ray_ephemeral_drop": None,
    "F-r09_ray_raylet_stop": None,
    "clean-mpn-tp2": None,
    "clean-ray2-tp2": None,
    "stage-tp2-compile": 40.0,
    "mpn-tp2": 20.0,
}
"""Run -> the moment, None for its end."""


def condensed(state: RankState) -> dict[str, Any]:
    """Main thread only, few frames, few lines, no paths of the lab."""
    data = state.as_dict()
    data["threads"] = [{**thread, "frames": thread["frames"][:FRAMES]} for thread in data["threads"] if thread["main"]]
    data["log_tail"] = data["log_tail"][-4:]
    text = json.dumps({key: value for key, value in data.items() if value not in (None, [], {}, "")})
    return json.loads(text.replace("/tmp/lab/venv", "/opt/engine").replace("/tmp/lab", "/srv"))


def main(folder: Path) -> int:
    FIXTURES.mkdir(exist_ok=True)
    for name, moment in RUNS.items():
        states = evidence.states(evidence.read(folder / name), at=moment, gone=moment is None)
        rows = ",\n".join(json.dumps(condensed(state)) for state in states)
        (FIXTURES / f"{name}.json").write_text(f"[\n{rows}\n]\n")
        print(f"{name}: {len(states)} processes")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
