"""ncdiag bandwidth through actors in a placement group of a real Ray cluster; it does not take GPUs that Ray has given away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncdiag.drill import engines, rays
from ncdiag.drill.hosts import Lab, lab, usable, wait_for

ROOT = Path(__file__).parent.parent.parent
pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(400),
    pytest.mark.skipif(usable() is not None, reason=str(usable())),
    pytest.mark.skipif(
        engines.lacks("ray", "torch", "ClusterShell") is not None,
        reason=str(engines.lacks("ray", "torch", "ClusterShell")),
    ),
]
HOLDER = """
import ray, time
ray.init("{address}", log_to_driver=False)
group = ray.util.placement_group([{{"GPU": 1}}])
ray.get(group.ready())
print("held", flush=True)
time.sleep(300)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Lab]:
    with lab("gpu01", "gpu02") as hosts:
        rays.start(hosts, "gpu01", "gpu02")
        yield hosts


def bandwidth(hosts: Lab, code: int) -> Any:
    where = ["--nodes", f"ray:{hosts['gpu01'].address}:{rays.PORT}"]
    done = hosts["gpu01"].run(
        engines.python(), "-m", "ncdiag", "-q", "bandwidth", *where, "--min", "4K", "--max", "256K", "--factor", "8", "--seconds", "0.5", "--format", "json",
        env={**rays.ENVIRONMENT, "PYTHONPATH": str(ROOT)}, timeout_s=200,
    )  # fmt: skip
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(done.stdout) if done.stdout else done.stderr


def test_one_rank_a_gpu_of_the_cluster(cluster: Lab) -> None:
    report = bandwidth(cluster, 0)
    assert [rank["node"] for rank in report["ranks"]] == ["gpu01", "gpu02"]
    assert [row["wrong"] for row in report["rows"]] == [0, 0, 0]


def test_gpus_that_ray_has_given_away(cluster: Lab) -> None:
    log = cluster.folder / "holder.log"
    address = f"{cluster['gpu01'].address}:{rays.PORT}"
    cluster["gpu02"].start(engines.python(), "-c", HOLDER.format(address=address), log=log, env=rays.ENVIRONMENT)
    assert wait_for(lambda: "held" in log.read_text(), 60), log.read_text()
    assert "1 of 2 GPUs free" in bandwidth(cluster, 2)
