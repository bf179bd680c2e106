"""NCCL graph dumps (`NCCL_GRAPH_DUMP_FILE`): the rings and trees it chose.

Source: src/graph/search.cc (ncclTopoGetXmlFromGraph) of v2.18.3-1 to v2.30.7-1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

from ncdiag.nccl.xml_reader import Element, read_xml

PATTERNS = {1: "balanced tree", 2: "split tree", 3: "tree", 4: "ring", 5: "NVLS", 6: "CollNet direct"}
IDS = {0: "ring", 1: "tree", 2: "CollNet chain", 3: "NVLS", 4: "CollNet direct"}


@dataclass
class Graph:
    """One algorithm's channels."""

    name: str
    pattern: str
    channels: int
    intra_gbytes_s: Optional[float]  # per channel inside the node
    inter_gbytes_s: Optional[float]  # per channel towards the NIC
    intra: str  # the worst path type inside
    inter: str  # the worst path type towards the NIC
    cross_nic: bool
    orders: List[List[str]] = field(default_factory=list)  # per channel: net0, gpu3, …, as traversed

    def nets(self) -> Dict[int, int]:
        """NIC number -> how often channels enter or leave by it."""
        counted: Dict[int, int] = {}
        for order in self.orders:
            for step in order:
                if step.startswith("net"):
                    counted[int(step[3:])] = counted.get(int(step[3:]), 0) + 1
        return counted


@dataclass
class Graphs:
    graphs: List[Graph]
    remarks: List[str]


def looks_like_graphs(text: str) -> bool:
    return "<graphs" in text


def parse_graphs(text: str) -> Graphs:
    """Raises NotNcclXml (a ValueError) where there is no `<graphs>`."""
    document = read_xml(text, "graphs")
    return Graphs([_graph(element) for element in document.root.named("graph")], document.remarks)


def _number(element: Element, name: str) -> Optional[float]:
    try:
        return float(element.text(name))
    except ValueError:
        return None


def _graph(element: Element) -> Graph:
    channels = list(element.named("channel"))
    number, pattern = element.integer("id"), element.integer("pattern")
    return Graph(
        name=IDS.get(-1 if number is None else number, f"graph {number}"),
        pattern=PATTERNS.get(pattern or 0, f"pattern {pattern}"),
        channels=element.integer("nchannels") or len(channels),
        intra_gbytes_s=_number(element, "speedintra"),
        inter_gbytes_s=_number(element, "speedinter"),
        intra=element.text("typeintra", "?"),
        inter=element.text("typeinter", "?"),
        cross_nic=bool(element.integer("crossnic")),
        orders=[_order(channel) for channel in channels],
    )


def _order(channel: Element) -> List[str]:
    steps = []
    for child in channel.children:
        dev = child.integer("dev")
        if child.name in ("net", "gpu") and dev is not None and dev >= 0:
            steps.append(f"{child.name}{dev}")
    return steps


def as_data(graphs: Graphs) -> Dict[str, Any]:
    return {"graphs": [dict(vars(graph), nets=graph.nets()) for graph in graphs.graphs], "remarks": graphs.remarks}
