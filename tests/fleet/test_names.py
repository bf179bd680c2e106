"""Names of nodes: whatever ClusterShell's node sets know, files of hosts among them, and kinds of fleets that cannot be joined."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncdiag.fleet import FleetError, open_fleet
from ncdiag.fleet.file import FileFleet
from ncdiag.fleet.names import expand
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
    ("gpu01!", "a node set is missing"), ("@/nowhere/hosts,gpu01", "/nowhere/hosts: No such file or directory"), ("gpu[b-a]", "gpu[b-a]"),
])  # fmt: skip
def test_mistakes_are_one_sentence(spec: str, message: str) -> None:
    with pytest.raises(FleetError) as caught:
        expand(spec)
    assert message in str(caught.value) and "\n" not in str(caught.value)


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


@pytest.mark.parametrize("spec", ["ssh:", "ssh:gpu01!gpu01", "gpu01", "local:x", "pbs:1"])
def test_what_names_nothing(spec: str) -> None:
    with pytest.raises(FleetError, match="names no node|not a fleet"):
        open_fleet(spec)
