"""Names of nodes: whatever ClusterShell's node sets know, files of hosts among them, and kinds of fleets that cannot be joined."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncdiag.fleet import FleetError, Request, open_fleet
from ncdiag.fleet.file import FileFleet
from ncdiag.fleet.names import MAX_NODES, expand
from ncdiag.fleet.ssh import SshFleet


@pytest.fixture
def hostfile(tmp_path: Path) -> Path:
    path = tmp_path / "hosts"
    path.write_text("# racks\ngpu05 slots=8\n\ngpu06 # spare\ngpu[07-08] slots=8\n")
    return path


@pytest.mark.parametrize("spec, names", [
    ("gpu01", "gpu01"),
    ("gpu[01-04],gpu07,login", "gpu01 gpu02 gpu03 gpu04 gpu07 login"),
    ("login,gpu[01-02],gpu02", "gpu01 gpu02 login"),
    ("gpu[01-07/3]", "gpu01 gpu04 gpu07"),
    ("gpu[1-2]-ib[0-1]", "gpu1-ib0 gpu1-ib1 gpu2-ib0 gpu2-ib1"),
    ("gpu[01-04]!gpu03", "gpu01 gpu02 gpu04"),
    ("gpu[01-04]!gpu[02-03],gpu09", "gpu01 gpu04 gpu09"),
    ("gpu[01-04]&gpu[03-09]", "gpu03 gpu04"),
    ("gpu[01-03]^gpu[03-04]", "gpu01 gpu02 gpu04"),
    ("gpu[1-2,5],192.0.2.[1-2]", "192.0.2.1 192.0.2.2 gpu1 gpu2 gpu5"),
    ("user-a , user-b", "user-a user-b"),
    ("gpu01!gpu01", ""),
])  # fmt: skip
def test_node_sets(spec: str, names: str) -> None:
    assert sorted(expand(spec)) == names.split()


@pytest.mark.parametrize("spec, names", [
    ("@{}", "gpu05 gpu06 gpu07 gpu08"),
    ("@{},gpu09", "gpu05 gpu06 gpu07 gpu08 gpu09"),
    ("gpu09,@{}", "gpu05 gpu06 gpu07 gpu08 gpu09"),
    ("@{}!gpu06", "gpu05 gpu07 gpu08"),
    ("gpu[04-09]!@{}", "gpu04 gpu09"),
    ("gpu[04-06]&@{},login", "gpu05 gpu06 login"),
])  # fmt: skip
def test_files_of_hosts_stand_anywhere(hostfile: Path, spec: str, names: str) -> None:
    assert sorted(expand(spec.format(hostfile))) == names.split()


@pytest.mark.parametrize("spec, message", [
    ("gpu[01-04", "missing bracket"), ("gpu01,,gpu02", "a node set is missing"), ("!gpu01", "a node set is missing"),
    ("gpu01!", "a node set is missing"), ("@/nowhere/hosts,gpu01", "@/nowhere/hosts: No such file or directory"), ("gpu[b-a]", "[b-a] is not a range"), ("gpu[]", "[] is not a range"),
    ("gpu[1,,2]", "[] is not a range"), ("gpu[-5]", "[-5] is not a range"), ("gpu[-5--1]", "[-5--1] is not a range"), ("gpu[5-1]", "[5-1] ends before it begins"),
    ("gpu[1-3/0]", "[1-3/0] has a step of 0"), ("gpu[1-[2-3]]", "closing bracket"), ("gpu[1-\u0663]", "is not a range"), ("gpu[1.5-2]", "is not a range"),
    ("gpu[" + "0" * 4000 + "1-2]", "is not a range"), ("a" * 254, "is no host's name"), ("gpu 01", "'gpu 01' is no host's name"), ("gpu\x1b01", "is no host's name"),
    ("-oProxyCommand=touch", "begins with a dash"), ("$(id)", "is no host's name"), ("gpu01;id", "is no host's name"), ("@", "the name of a file is missing behind @"), ("@-", "@-: standard input is not read here; save the hosts to a file"),
    ("@@nowhere", "@@nowhere: No such file or directory"), ("@`id`", "@`id`: No such file or directory"), ("^", "a node set is missing"), ("a^^b", "a node set is missing"),
    ("@/dev/zero", "@/dev/zero: a character device; a regular file is wanted"), ("@/", "@/: a folder"),
])  # fmt: skip
def test_mistakes_are_one_sentence(spec: str, message: str) -> None:
    with pytest.raises(FleetError) as caught:
        expand(spec)
    assert message in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("spec, count", [
    ("gpu[1-999999999999]", "999,999,999,999"), ("gpu[1-20001]", "20,001"), ("gpu[1-300][1-300]", "90,000"), ("gpu[1-99999]!gpu[1-99998]", "99,999"),
    ("gpu[1-19999],login[1-19999]", "39,998"), (",".join(f"n{number}" for number in range(30_000)), "29,999"),
])  # fmt: skip
def test_more_nodes_than_anyone_has_are_refused_before_they_are_made(spec: str, count: str) -> None:
    started = time.monotonic()
    with pytest.raises(FleetError, match=f"that is {count} nodes; 20,000 at most"):
        expand(spec)
    assert time.monotonic() - started < 2


@given(st.one_of(st.text(max_size=40), st.text("gpu[]0123456789-,/!&^@ ?%:.'", max_size=60)))
def test_whatever_is_written_is_a_list_or_one_sentence(spec: str) -> None:
    try:
        names = expand(spec)
    except FleetError as error:
        assert "\n" not in str(error)
    else:
        assert len(names) <= MAX_NODES and not any(name.startswith("-") or " " in name for name in names)


@pytest.mark.parametrize("content, names", [
    (b"\xef\xbb\xbfgpu05 slots=8\r\n# b\xe2timent 2\r\ngpu06\r\n", "gpu05 gpu06"), (b"", ""), (b"\n\n# none\n", ""),
    (b"gpu01 slots=8 max_slots=8\ngpu02:8\ngpu03 ansible_host=192.0.2.3 x='-o A -o B'\ngpu04 8 all.q@gpu04 UNDEFINED\ngpu[05-06]\n",
     "gpu01 gpu03 gpu04 gpu05 gpu06 gpu02:8"),
])  # fmt: skip
def test_hosts_in_other_editors_words(tmp_path: Path, content: bytes, names: str) -> None:
    (tmp_path / "hosts").write_bytes(content)
    assert expand(f"@{tmp_path}/hosts") == names.split()


@pytest.mark.parametrize("content, message", [
    (b"\x7fELF\x02\x01\0\0", "not a text file"), (b"gpu01\n\xff\xfe\n", "is no host's name"), (b"gpu01\n-oProxyCommand=id\n", "begins with a dash"),
    (b"gpu[1-999999999]\n", "that is 999,999,999 nodes"), (b"# two\ngpu01\n\ngpu02 gpu03\n", r"hosts:4: 'gpu03' follows gpu02; a line has one host"),
    (b"gpu01\ngpu02 -p 22\n", r"hosts:2: '-p' follows gpu02"), (b"gpu01\n[gpu]\n", r"hosts:2: .*is not a range"), (b"gpu01\n\ngpu[3-1]", "hosts:3: .*ends before it begins"),
    (b"gpu01\n-oX\n", "hosts:2: .*begins with a dash"),
])  # fmt: skip
def test_files_that_list_no_hosts(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "hosts").write_bytes(content)
    with pytest.raises(FleetError, match=message):
        expand(f"gpu01,@{tmp_path}/hosts")


@pytest.mark.parametrize("name, content, message", [
    ("empty.json", b"", "is empty"), ("bin.json", b"\x7fELF\xff", r"\(not text\)"), ("tree.tar.gz", b"junk", "not a readable tar archive$"), ("none.json", None, "no such file or folder$"),
])  # fmt: skip
def test_what_was_not_captured(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FleetError, match=message) as caught:
        open_fleet(f"file:{tmp_path}/{name}").collect(Request([]), lambda node, probe: None)
    assert f"cannot read {tmp_path}/{name}: " in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero"])
def test_devices_are_no_trees(path: str) -> None:
    with pytest.raises(FleetError, match="is empty|a character device"):
        open_fleet(f"file:{path}").collect(Request([]), lambda node, probe: None)


def test_one_kind_may_be_named_again() -> None:
    ssh, file = open_fleet("ssh:gpu01,ssh:gpu[02-03]"), open_fleet("file:a.json,file:b.json")
    assert isinstance(ssh, SshFleet) and ssh.nodes == ["gpu01", "gpu02", "gpu03"]
    assert isinstance(file, FileFleet) and file._paths == ["a.json", "b.json"]


@pytest.mark.parametrize("spec, kinds", [
    ("local,ssh:gpu01", "local and ssh"), ("ssh:gpu01,local", "ssh and local"), ("ssh:gpu[01-02],k8s:default/app=vllm", "ssh and k8s"),
    ("file:a.json,ssh:gpu01", "file and ssh"), ("ray,ssh:gpu01", "ray and ssh"), ("k8s:a/app=x,k8s:b/app=x", "k8s cannot"),
    ("slurm:7,slurm:8", "slurm cannot"),
])  # fmt: skip
def test_kinds_are_not_mixed(spec: str, kinds: str) -> None:
    with pytest.raises(FleetError, match=kinds) as caught:
        open_fleet(spec)
    assert "ssh:localhost,gpu02" in str(caught.value)


@pytest.mark.parametrize("spec", ["ssh:", "ssh:gpu01!gpu01", "ssh:@/dev/null", "gpu01", "local:x", "pbs:1"])
def test_what_names_nothing(spec: str) -> None:
    with pytest.raises(FleetError, match="names no node|not a fleet|no kind of fleet"):
        open_fleet(spec)


def test_standard_input_is_no_snapshot() -> None:
    with pytest.raises(FleetError, match="file:-: standard input is not read here; save it to a file"):
        open_fleet("file:-").collect(Request([]), lambda node, probe: None)


@pytest.mark.parametrize("spec, advised", [
    ("gpu01", True), ("gpu[01-16]", True), ("gpu01,gpu02", True), ("192.0.2.7", True),
    ("ssh", False), ("ssh:", False), ("/tmp/hosts", False), ("host:gpu01", False), ("k8s", False), ("", False),
])  # fmt: skip
def test_hosts_without_the_kind_of_their_fleet(spec: str, advised: bool) -> None:
    with pytest.raises(FleetError) as raised:
        open_fleet(spec)
    assert (f"for hosts over SSH write --nodes ssh:{spec}. Else use local" in str(raised.value)) is advised
