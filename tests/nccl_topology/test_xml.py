"""The reader takes what NCCL takes and more, says where NCCL would refuse, and survives what is hostile or cut off."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncdiag.nccl.graph_xml import parse_graphs
from ncdiag.nccl.rules import rules_for
from ncdiag.nccl.settings import Settings
from ncdiag.nccl.topology_check import check_topology
from ncdiag.nccl.topology_view import as_data, view
from ncdiag.nccl.topology_xml import looks_like_topology, parse_topology
from ncdiag.nccl.xml_reader import NotNcclXml
from tests.nccl_topology import machines

GRAPHS = """<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="40" speedinter="40" latencyinter="0" typeintra="NVL" typeinter="PIX" samechannels="0">
    <channel><net dev="0x0"/><gpu dev="0x0" rank="0"/><gpu dev="0x1" rank="1"/><net dev="0x0"/></channel>
    <channel><net dev="0xb"/><gpu dev="0x1" rank="1"/><gpu dev="0x0" rank="0"/><net dev="0xb"/></channel>
  </graph>
  <graph id="3" pattern="5" nchannels="0"/>
</graphs>
"""  # composed


def test_reads_every_part():
    topology = parse_topology(machines.eight_rails())
    assert [cpu.numa for cpu in topology.cpus] == [0, 1]
    first = topology.gpus()[0]
    assert (first.dev, first.sm, first.rank, first.gdr, first.nvlinks[0].count, first.nvlinks[0].to) == (
        0,
        90,
        0,
        True,
        18,
        "nvswitch",
    )
    assert [net.name for net in topology.nets()] == [f"mlx5_{i}" for i in range(8)]
    assert topology.nets()[0].speed_mbits_s == 400000
    assert not topology.remarks


def test_merged_device_knows_its_ports():
    assert parse_topology(machines.merged_nics()).nets()[0].members == ("mlx5_0", "mlx5_1")


def test_c2c():
    assert parse_topology(machines.grace()).gpus()[0].c2c_gbytes_s == 440.0


def test_file_with_only_the_pci_tree():
    """Cloud images ship such files; NCCL adds GPUs and NICs by class."""
    text = (
        '<system version="1"><cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">'
        '<pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">'
        '<pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>'
        '<pci busid="0101:00:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/></pci></cpu></system>'
    )
    shown = view(parse_topology(text), rules_for(None), Settings())
    assert [one.gpu.busid for one in shown.gpus] == ["0001:00:00.0"]
    assert shown.gpus[0].own[0].distance == "PIX"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('<?xml version="1.0"?>\n{}', "header"),
        ("some text\n{}", "before the first element"),
        ("<!DOCTYPE system [<!ENTITY a 'b'>]>\n{}", ""),
    ],
)
def test_what_nccl_refuses_is_said(text, word):
    topology = parse_topology(text.format(machines.one_gpu()))
    assert len(topology.gpus()) == 1
    assert any(word in remark for remark in topology.remarks)


def test_wrong_nesting_is_said_and_passed_over():
    text = '<system version="1"><gpu dev="0"/><cpu numaid="0"><net name="x"/><pci busid="0000:01:00.0" class="0x030200"/></cpu></system>'
    remarks = " ".join(parse_topology(text).remarks)
    assert "<gpu> below <system>" in remarks and "<net> below <cpu>" in remarks


def test_other_version_and_single_quotes():
    topology = parse_topology("<system version='2'><cpu numaid='1'/></system>")
    assert topology.cpus[0].numa == 1 and "accepts 1 only" in topology.remarks[0]


@pytest.mark.parametrize(
    "text",
    ["", "hello", "<html><body></body></html>", '<system version="1"/>', "<systemd/>", "<system><unit/></system>"],
)
def test_others_are_no_topology(text):
    with pytest.raises(NotNcclXml):
        parse_topology(text)


def test_cut_anywhere_never_raises_and_is_said():
    text = machines.eight_rails()
    for length in range(text.index("<cpu") + 5, len(text) - len("</system>") - 1, 37):
        topology = parse_topology(text[:length])
        assert any("ends inside" in remark or "not closed" in remark for remark in topology.remarks), length
        list(check_topology(view(topology, rules_for(None), Settings()), "n"))


def test_cut_dump_is_not_healthy():
    text = machines.eight_rails()
    findings = list(check_topology(view(parse_topology(text[: len(text) * 3 // 4]), rules_for(None), Settings()), "n"))
    assert findings[0].status.value == "unknown"


def test_entities_are_never_expanded():
    bomb = "<!DOCTYPE s [" + "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12)) + "]>"
    topology = parse_topology(bomb + '<system version="1"><cpu numaid="0" vendor="&a11;"/></system>')
    assert topology.cpus[0].vendor == "&a11;"


@pytest.mark.parametrize(
    "text",
    [
        "<system>" + "<pci " * 20000,
        "<system>" + "<pci>" * 20000,
        "<system " + "a" * 1000000,
        "<system " + 'a="' * 100000,
        "<system><!--" + "-" * 1000000,
        "<system>" + "<!--" * 100000,
        "<system>" + "</cpu>" * 100000,
        '<system version="1"><cpu numaid="0">' + '<pci busid="0000:01:00.0" class="0x02"/>' * 20000,
    ],
)
def test_hostile_text_ends_quickly(text):
    started = time.monotonic()
    try:
        topology = parse_topology(text)
        assert len(topology.remarks) <= 45
    except NotNcclXml:
        pass
    assert time.monotonic() - started < 5


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_mutated_dumps_never_raise(data):
    text = data.draw(
        st.sampled_from([machines.eight_rails(), machines.grace(), machines.merged_nics(), machines.flat_cloud()])
    )
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 400)))
    text = (
        text[:start]
        + data.draw(st.text(max_size=30) | st.sampled_from(["-", '"', "0x", "999999999999999999999", "\0", "<pci>"]))
        + text[end:]
    )
    try:
        topology = parse_topology(text)
    except NotNcclXml:
        return
    shown = view(topology, rules_for(data.draw(st.sampled_from([(2, 18, 3), (2, 27, 3), (2, 30, 7)]))), Settings())
    as_data(shown)
    list(check_topology(shown, "n"))


def test_graphs():
    graphs = parse_graphs(GRAPHS)
    ring, nvls = graphs.graphs
    assert (ring.name, ring.channels, ring.intra, ring.inter) == ("ring", 2, "NVL", "PIX")
    assert ring.nets() == {0: 2, 11: 2}
    assert ring.orders[0] == ["net0", "gpu0", "gpu1", "net0"]
    assert (nvls.name, nvls.intra) == ("NVLS", "?")


def test_recognised_by_content():
    assert looks_like_topology(machines.one_gpu()) and not looks_like_topology("<graphs/>")


def test_more_devices_than_nccl_takes_are_refused_before_their_paths_are_worked_out():
    pci = "".join(
        f'<pci busid="0000:{number >> 8:02x}:{number & 255:02x}.0" class="0x030200"><gpu dev="{number}" sm="90" rank="{number}"/></pci>'
        for number in range(700)
    )
    with pytest.raises(NotNcclXml, match="700 GPUs"):
        parse_topology(f'<system version="1"><cpu numaid="0">{pci}</cpu></system>')
