"""A topology on the terminal: the tree, the GPU-to-NIC distances, and which NICs each GPU will use."""

from __future__ import annotations

import re

from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ncdiag.nccl.graph_xml import Graphs
from ncdiag.nccl.rules import MEANINGS
from ncdiag.nccl.topology import Cpu, Gpu, Net, Pci, link_name
from ncdiag.nccl.topology_view import GpuView, NicView, View
from ncdiag.nodeset import counted
from ncdiag.report.console import make_console, plain

MAX_COLUMNS = 16  # NICs side by side; more are told by group
_PATH = re.compile(rf"(?<![\w/-])(?:{'|'.join(MEANINGS)})(?![\w-]|/[\w])")
"""A name by itself: not that of a transport (NET/IB), of a variable or of a device."""
_STYLES = {"PIX": "green", "PXB": "green", "P2C": "green", "NVL": "green", "PXN": "cyan", "PHB": "yellow", "SYS": "red"}


def topology_as_text(name: str, shown: View, *, color: str | None) -> str:
    """Tree, matrix, choice and remarks of one machine."""
    console, buffer = make_console(color)
    console.print(Text(f"{plain(name)} — as {shown.rules.seen_by}", "bold"))
    for tree in _trees(shown):
        console.print(tree)
    if shown.gpus and shown.nets:
        console.print()
        _matrix(console, shown)
        console.print()
        _choice(console, shown)
    for remark in shown.topology.remarks:
        console.print(Text(f"note: {plain(remark)}", "dim"))
    return buffer.text()


def _trees(shown: View) -> list[Tree]:
    trees = []
    for cpu in shown.topology.cpus:
        tree = Tree(Text(_cpu_name(cpu), "bold"), guide_style="dim")
        for pci in cpu.pci:
            _grow(tree, pci)
        for net in cpu.nets:
            tree.add(Text(_net_name(net) + "  (virtual: not in the PCI tree)", "yellow"))
        trees.append(tree)
    return trees


def _cpu_name(cpu: Cpu) -> str:
    numa = "NUMA node not given" if cpu.numa < 0 else f"NUMA node {cpu.numa}"
    return " ".join(plain(part) for part in (f"CPU ({numa})", cpu.vendor.strip(), cpu.arch) if part)


def _grow(tree: Tree, pci: Pci) -> None:
    link = f"{plain(pci.busid)}  {link_name(pci.current_gts or pci.gts, pci.current_width or pci.width)}"
    if not pci.gpus and not pci.nets:
        branch = tree.add(Text(f"{'NVSwitch' if pci.kind == 'nvswitch' else 'switch'} {link}", "dim"))
        for child in pci.children:
            _grow(branch, child)
        return
    for gpu in pci.gpus:
        text = Text(gpu.label, "bold green")
        text.append(f"  {link}", "dim")
        text.append("".join(f"  {what}" for what in _gpu_extras(gpu)))
        tree.add(text)
    for net in pci.nets:
        text = Text(_net_name(net), "bold cyan")
        text.append(f"  {link}", "dim")
        tree.add(text)
    for child in pci.children:
        _grow(tree, child)


def _gpu_extras(gpu: Gpu) -> list[str]:
    links = sum(link.count for link in gpu.nvlinks)
    extras = [f"sm {gpu.sm}"] if gpu.sm else []
    extras += [counted(links, "NVLink")] if links else []
    extras += [f"C2C {gpu.c2c_gbytes_s:g} GB/s"] if gpu.c2c_gbytes_s else []
    return extras + (["no GPUDirect"] if gpu.gdr is False else [])


def _net_name(net: Net) -> str:
    speed = f"  {net.speed_mbits_s / 1000:g} Gb/s" if net.speed_mbits_s > 0 else ""
    return f"NIC {net.dev} {plain(net.label)}{speed}" + ("  no GPUDirect" if net.gdr is False else "")


def _matrix(console: Console, shown: View) -> None:
    """Distances of the hardware; * marks the NICs that the GPU's channels take."""
    groups = [shown.nets[start : start + MAX_COLUMNS] for start in range(0, len(shown.nets), MAX_COLUMNS)]
    for nets in groups:
        table = Table(title="distance", title_justify="left", box=None, pad_edge=False)
        table.add_column("")
        for net in nets:
            table.add_column(f"{net.dev} {plain(net.label)}", overflow="fold")
        for one in shown.gpus:
            own = {id(nic.net) for nic in one.own}
            by_net = {id(nic.net): nic for nic in one.nics}
            cells = [_cell(by_net[id(net)], id(net) in own) for net in nets]
            table.add_row(one.gpu.label, *cells)
        console.print(table)
    console.print(Text("* used by that GPU", "dim"))


def _cell(nic: NicView, own: bool) -> Text:
    return Text(nic.distance + ("*" if own else ""), _STYLES.get(nic.distance, ""))


def _choice(console: Console, shown: View) -> None:
    table = Table(title="NICs that each GPU takes", title_justify="left", box=None, pad_edge=False)
    for column in ("", "NIC", "path", "GPUDirect receive / send", "why not"):
        table.add_column(column, overflow="fold")
    for one in shown.gpus:
        if not one.own:
            table.add_row(one.gpu.label, Text("none", "red"), "", "", "no network device is connected to it")
        for position, nic in enumerate(one.own):
            table.add_row(one.gpu.label if position == 0 else "", *_nic_row(nic))
    console.print(table)
    if shown.unused:
        names = ", ".join(plain(net.label) for net in shown.unused)
        console.print(Text(f"taken by no GPU: {names} (rings may still use them)", "dim"))
    unproven = sorted({plain(item) for one in shown.gpus for nic in one.own for item in nic.gdr.unproven})
    if unproven:
        console.print(Text(f"taken for granted: {'; '.join(unproven)}", "dim"))


def _nic_row(nic: NicView) -> tuple[str, str, Text, str]:
    path = nic.used_path if nic.used_path == nic.distance else f"{nic.distance}, used as {nic.used_path}"
    if nic.via is not None:
        path += f" through {nic.via.label}"
    answer = Text()
    for yes, after in ((nic.gdr.receive, " / "), (nic.gdr.send, "")):
        answer.append("yes" if yes else "no", "green" if yes else "yellow")
        answer.append(after)
    return plain(nic.net.label), path, answer, plain("; ".join(nic.gdr.reasons))


def gpu_matrix_as_text(shown: View, *, color: str | None) -> str:
    """GPU to GPU, where there are at least two."""
    console, buffer = make_console(color)
    if len(shown.gpus) < 2:
        return ""
    table = Table(title="between GPUs", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for one in shown.gpus:
        table.add_column(str(one.gpu.dev if one.gpu.dev is not None else plain(one.gpu.busid)))
    for one in shown.gpus:
        table.add_row(one.gpu.label, *[_gpu_cell(one, other) for other in shown.gpus])
    console.print(table)
    return buffer.text()


def _gpu_cell(one: GpuView, other: GpuView) -> Text:
    kind = "-" if one is other else one.gpu_paths.get(other.gpu.label, "?")
    return Text(kind, _STYLES.get(kind, ""))


def paths_in(shown: str) -> list[tuple[str, str]]:
    """NCCL's names of paths that stand in a text, nearest first, each with what it means."""
    found = {match[0] for match in _PATH.finditer(shown)}
    return [(kind, meaning) for kind, meaning in MEANINGS.items() if kind in found]


def legend_as_text(shown: str, *, color: str | None) -> str:
    """`paths_in` for a terminal; "" where there is none."""
    found = paths_in(shown)
    if not found:
        return ""
    console, buffer = make_console(color)
    console.print(Text("NCCL's paths, from near to far"))
    table = Table(box=None, pad_edge=False, show_header=False)
    for kind, meaning in found:
        table.add_row(Text(kind, _STYLES.get(kind, "")), meaning)
    console.print(table)
    return buffer.text()


def graphs_as_text(name: str, graphs: Graphs, *, color: str | None) -> str:
    """One line an algorithm, and how often each NIC is used."""
    console, buffer = make_console(color)
    console.print(Text(f"{plain(name)} — the graphs that NCCL chose", "bold"))
    table = Table(box=None, pad_edge=False)
    for column in ("algorithm", "pattern", "channels", "GB/s in / out", "path in / out", "NICs by channel ends"):
        table.add_column(column, overflow="fold")
    for graph in graphs.graphs:
        nets = ", ".join(f"{dev}:{times}" for dev, times in sorted(graph.nets().items())) or "none (one node)"
        rates = " / ".join(
            "?" if rate is None else f"{rate:g}" for rate in (graph.intra_gbytes_s, graph.inter_gbytes_s)
        )
        table.add_row(
            graph.name, graph.pattern, str(graph.channels), rates, f"{plain(graph.intra)} / {plain(graph.inter)}", nets
        )
    console.print(table)
    for remark in graphs.remarks:
        console.print(Text(f"note: {plain(remark)}", "dim"))
    return buffer.text()
