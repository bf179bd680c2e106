"""How judging and reporting grow with the number of nodes.

    python benchmarks/many_nodes.py [--nodes 100 1000 10000] [--times 5] [--show]

Every node is a recorded machine (eight GPUs' worth of NICs behind PCIe switches, tests/trees) completed with the facts of this
one, with a name, addresses and settings of its own. One in a hundred has another kernel, one in two hundred a full /dev/shm, one
in two hundred and fifty MTU 1500, one in five hundred did not answer; two share a host name. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import platform
import time
from pathlib import Path
from typing import Any

from ncdiag import registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Host, Recorded
from ncdiag.model import NodeFacts, Snapshot
from ncdiag.report.console import findings_as_text
from ncdiag.report.json import findings_as_json
from ncdiag.report.run import of_snapshot
from ncdiag.tree import open_tree

TREE = Path(__file__).parent.parent / "tests" / "trees" / "pci-switches-numa-8rail.tar.gz"
FROM_TREE = (
    "interfaces",
    "default-route",
    "rdma-devices",
    "rdma-counters",
    "rdma-mtu",
    "roce-gid",
    "pci-devices",
    "acs-iommu",
)


def base() -> NodeFacts:
    """Facts of this machine, its network and PCI devices those of the recorded one."""
    probes = registry.load()
    node = collect(Host(), probes.sources(probes))
    recorded = collect(Recorded(open_tree(str(TREE)), "recorded"), probes.sources(probes))
    for name in FROM_TREE:
        node.facts[name] = recorded.facts[name]
    node.facts["host-name"].update(hosts=[], nameservers=[], failed="", error=None, took_s=0.001)
    node.facts["node-address"]["raylets"] = []
    node.meta["recorded"] = True
    return node


def snapshot(template: NodeFacts, count: int) -> Snapshot:
    text = json.dumps(template.facts)
    return Snapshot({f"gpu{number:05d}": _node(text, template.meta, number) for number in range(count)})


def _node(text: str, meta: dict[str, Any], number: int) -> NodeFacts:
    name = f"gpu{number:05d}"
    if number % 500 == 13:
        return NodeFacts(name, unreachable="no answer within 60 s")
    facts = json.loads(text)
    own = []
    for index, entry in enumerate(entry for entry in facts["interfaces"]["addresses"] if entry["family"] == "inet"):
        if not entry["address"].startswith("127."):
            entry.update(address=f"10.{index}.{number >> 8}.{number & 255}", prefix=16)
            own.append(entry["address"])
    for route in facts["default-route"]["routes"]:
        if route["family"] == "inet" and route["bits"]:
            route.update(to=f"10.{int(route['interface'][3:] or 0) + 1}.0.0", bits=16)
    facts["host-name"].update(name="gpu00003" if number == 4 else name, addresses=own[:1])
    facts["framework-environment"]["environ"]["VLLM_HOST_IP"] = own[0]
    facts["node-address"]["raylets"] = [{"pid": 1000 + number, "node_ip": own[0], "gcs_address": "10.1.0.0:6379"}]
    if number % 100 == 7:
        facts["platform"]["kernel"] = "5.15.0-other"
    if number % 200 == 11:
        facts["shm"]["free_bytes"] = 1 << 20
    for link in facts["interfaces"]["links"]:
        link["mtu"] = 1500 if number % 250 == 17 and link["name"] == "eth3" else 9000
    return NodeFacts(name, facts, {}, dict(meta, hostname=name))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--times", type=int, default=5, help="the best of so many runs is shown")
    parser.add_argument("--show", action="store_true", help="print the report of the last, too")
    options = parser.parse_args()
    probes, template, text = registry.load(), base(), ""
    print(
        f"Python {platform.python_version()}, one core\n\n"
        "| nodes | findings | judge CPU s | text CPU s | lines of text | JSON CPU s | JSON MB | all CPU s |\n|---|---|---|---|---|---|---|---|"
    )
    for count in options.nodes:
        many = snapshot(template, count)
        gc.disable()  # as preflight does
        runs = []
        for _ in range(options.times):
            again = Snapshot(many.nodes, many.plan)
            times = [time.process_time()]
            findings = check(again, probes)
            times.append(time.process_time())
            text = findings_as_text(list(many.nodes), findings, show_all=False, color=None)
            times.append(time.process_time())
            stored = findings_as_json("preflight", list(many.nodes), findings, 0, of_snapshot(many))
            times.append(time.process_time())
            runs.append([after - before for before, after in itertools.pairwise(times)])
        gc.enable()
        judge, shown, wrote = min(runs, key=sum)
        print(
            f"| {count:,} | {len(findings):,} | {judge:.2f} | {shown:.2f} | {len(text.splitlines())} | {wrote:.2f} "
            f"| {len(stored) / 1e6:.1f} | {judge + shown + wrote:.2f} |"
        )
    if options.show:
        print("\n" + text)


if __name__ == "__main__":
    main()
