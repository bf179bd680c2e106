"""`ncdiag env` as a person meets it: what it writes is what a shell, docker, Kubernetes and Ray read."""

from __future__ import annotations

import json
import os
import platform
import random
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from ncdiag.nccl.written import for_node, read
from tests.env.clusters import env, saved, two_nodes, with_links
from tests.probes.machines import eight_rails

WANTED = {"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"file:{saved(tmp_path_factory.mktemp('cluster'), two_nodes())}"


def test_shell_is_what_a_shell_reads(tmp_path: Path) -> None:
    here = platform.node()
    nodes = f"file:{saved(tmp_path, two_nodes((here, 'another')))}"
    done = env("--nodes", nodes)
    assert done.returncode == 0, done.stderr
    assert "192.0.2.0/24 on eth0 is the network that all 2 nodes share" in done.stdout.replace("\n# ", " ")
    assert "Derived from: interfaces and addresses of all nodes" in done.stdout.replace("\n# ", " ")
    script = tmp_path / "env.sh"
    script.write_text(done.stdout)
    shown = subprocess.run(
        ["sh", "-ec", f". {script}; env"], check=True, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    ).stdout
    assert {f"{name}={value}" for name, value in {**WANTED, "VLLM_HOST_IP": "192.0.2.1"}.items()} <= set(
        shown.splitlines()
    )
    assert for_node(read(done.stdout), "another") == {**WANTED, "VLLM_HOST_IP": "192.0.2.2"}


def test_docker_has_a_command_for_each_node(cluster: str) -> None:
    done = env("--nodes", cluster, "--as", "docker")
    commands = [
        shlex.split(line) for line in done.stdout.replace("\\\n", " ").splitlines() if line.startswith("docker run")
    ]
    assert [words[-2] for words in commands] == ["VLLM_HOST_IP=192.0.2.1", "VLLM_HOST_IP=192.0.2.2"]
    assert all("NCCL_SOCKET_IFNAME==eth0" in words for words in commands)


def test_kubernetes_and_ray_are_yaml(cluster: str) -> None:
    listed = yaml.safe_load(env("--nodes", cluster, "--as", "kubernetes").stdout)["env"]
    assert {one["name"]: one.get("value") for one in listed} == {**WANTED, "VLLM_HOST_IP": None}
    done = env("--nodes", cluster, "--as", "ray")
    assert yaml.safe_load(done.stdout) == {"env_vars": WANTED}, (
        "an address of one node's own must not reach all workers"
    )
    assert "# gpu02: export VLLM_HOST_IP=192.0.2.2" in done.stdout


def test_json(cluster: str) -> None:
    told = json.loads(env("--nodes", cluster, "--as", "json").stdout)
    assert told["schema"] == 1 and told["command"] == "env" and told["exit"] == 0 and told["unread"] == []
    assert told["environment"]["gpu02"] == {"set": {**WANTED, "VLLM_HOST_IP": "192.0.2.2"}, "unset": []}
    assert all(one["why"] and one["derived_from"] for one in told["settings"])


def test_names_that_differ_are_set_node_by_node(tmp_path: Path) -> None:
    nodes = f"file:{saved(tmp_path, two_nodes(links=('eth0', 'enp1s0')))}"
    written = read(env("--nodes", nodes).stdout)
    assert for_node(written, "gpu02")["NCCL_SOCKET_IFNAME"] == "=enp1s0"
    kubernetes = env("--nodes", nodes, "--as", "kubernetes").stdout
    assert "NCCL_SOCKET_IFNAME differs between nodes (gpu01: =eth0; gpu02: =enp1s0)" in kubernetes
    assert [one["name"] for one in yaml.safe_load(kubernetes)["env"]] == ["VLLM_HOST_IP"]


def test_what_is_left_on_is_to_be_unset(tmp_path: Path) -> None:
    machines = two_nodes()
    machines[1].environ(NCCL_IB_DISABLE="1")
    done = env("--nodes", f"file:{saved(tmp_path, machines)}")
    assert (
        "# on gpu02: NCCL_IB_DISABLE=1 switches RDMA off" in done.stdout and "\nunset NCCL_IB_DISABLE\n" in done.stdout
    )


def test_gid_index_only_where_nccl_does_not_look_for_it(tmp_path: Path) -> None:
    tree = Path(__file__).parent.parent / "trees" / "healthy-rocev2-gid3-empty.tar.gz"
    assert "NCCL_IB_GID_INDEX" not in env("--nodes", f"file:{tree}", "--nccl-version", "2.27.3").stdout
    assert "export NCCL_IB_GID_INDEX=1" in env("--nodes", f"file:{tree}", "--nccl-version", "2.20.5").stdout


def test_a_single_node_needs_nothing_and_says_so(tmp_path: Path) -> None:
    done = env("--nodes", f"file:{saved(tmp_path, [eight_rails('alone')])}", "--as", "kubernetes")
    assert yaml.safe_load(done.stdout) == {"env": []} and "Nothing has to be set" in done.stdout


def test_what_was_not_read_is_no_health(tmp_path: Path) -> None:
    path = saved(tmp_path, two_nodes())
    data = json.loads(path.read_text())
    data["nodes"]["gpu02"].update(facts={}, unreachable="timed out after 10 s")
    del data["nodes"]["gpu01"]["facts"]["roce-gid"]
    data["nodes"]["gpu01"]["errors"]["roce-gid"] = "Permission denied"
    path.write_text(json.dumps(data))
    done = env("--nodes", f"file:{path}")
    assert done.returncode == 3
    said = done.stdout.replace("\n# ", " ")
    assert "NOT LOOKED AT: gpu02 gave nothing (timed out after 10 s)" in said
    assert "NOT LOOKED AT: roce-gid of gpu01 could not be read: Permission denied" in said


# comparing


def compared(nodes: str, tmp_path: Path, text: str, name: str = "env.sh") -> tuple[int, dict[tuple[str, str], str]]:
    """Exit code, and (node, setting) -> status of what `env` itself found."""
    path = tmp_path / name
    path.write_text(text)
    done = env("--nodes", nodes, "--check", str(path), "--as", "json")
    told = json.loads(done.stdout)
    found = {
        (one["where"]["node"], one["where"]["setting"]): one["status"]
        for one in told["findings"]
        if one["probe"] == "env"
    }
    return done.returncode, found


@pytest.mark.parametrize("form", ["shell"])
def test_its_own_script_is_complete(cluster: str, tmp_path: Path, form: str) -> None:
    assert compared(cluster, tmp_path, env("--nodes", cluster, "--as", form).stdout) == (0, {})


def test_a_file_that_lacks_and_contradicts(cluster: str, tmp_path: Path) -> None:
    text = "export NCCL_SOCKET_IFNAME=eno9\nexport VLLM_HOST_IP=192.0.2.1\nexport NCCL_P2P_DISABLE=1\n"
    code, found = compared(cluster, tmp_path, text)
    assert code == 1
    assert found == {
        ("gpu01", "NCCL_SOCKET_IFNAME"): "fail", ("gpu02", "NCCL_SOCKET_IFNAME"): "fail",
        ("gpu02", "VLLM_HOST_IP"): "fail",
        ("gpu01", "GLOO_SOCKET_IFNAME"): "warn", ("gpu02", "GLOO_SOCKET_IFNAME"): "warn",
        ("gpu01", "NCCL_P2P_DISABLE"): "warn", ("gpu02", "NCCL_P2P_DISABLE"): "warn",
    }  # fmt: skip


def test_what_does_the_same_is_no_difference(cluster: str, tmp_path: Path) -> None:
    text = "NCCL_SOCKET_IFNAME=eth\nGLOO_SOCKET_IFNAME=eth0\nNCCL_IB_HCA=mlx5\n"
    _, found = compared(cluster, tmp_path, text)
    assert set(found.values()) == {"warn"} and {setting for _, setting in found} == {"VLLM_HOST_IP"}


def test_values_made_at_start_are_unknown(cluster: str, tmp_path: Path) -> None:
    text = "export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0\nexport VLLM_HOST_IP=$(hostname -i)\n"
    code, found = compared(cluster, tmp_path, text)
    assert code == 3 and found == {("gpu01", "VLLM_HOST_IP"): "unknown", ("gpu02", "VLLM_HOST_IP"): "unknown"}


def test_lines_that_nobody_understands_are_no_health(cluster: str, tmp_path: Path) -> None:
    path = tmp_path / "env.sh"
    path.write_text(env("--nodes", cluster).stdout + "NCCL_DEBUG = INFO\n" + "x" * 70_000)
    done = env("--nodes", cluster, "--check", str(path))
    assert done.returncode == 3
    said = " ".join(done.stdout.split())
    assert "with what gpu[01-02] needs" in said
    assert "2 lines of " in said and "it begins with 'NCCL_DEBUG'" in said


@pytest.mark.parametrize("content, said", [
    (random.Random(7).randbytes(200), "not text"), (b"A=1\0B=2\0", "not text"), (b"A=1\n" * (1 << 21), "larger than 4 MiB"),
], ids=["random", "nul", "large"])  # fmt: skip
def test_files_that_are_no_text(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "file").write_bytes(content)
    done = env("--check", str(tmp_path / "file"))
    assert done.returncode == 2 and said in done.stderr


def test_slips_are_said_too(cluster: str, tmp_path: Path) -> None:
    path = tmp_path / "runtime_env.json"
    path.write_text(
        json.dumps({"env_vars": {**WANTED, "NCCL_SOCKET_IFNAMES": "eth0", "VLLM_PORT": "tcp://10.77.0.1:8000"}})
    )
    done = env("--nodes", cluster, "--check", str(path))
    assert done.returncode == 1
    assert (
        "NCCL_SOCKET_IFNAMES" in done.stdout and "VLLM_PORT" in done.stdout and "VLLM_HOST_IP is not set" in done.stdout
    )


def test_a_running_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        ["sleep", "60"], env={"NCCL_IB_GID_INDEX": "x", "NCCL_SOCKET_IFNAM": "eth0", "PATH": os.environ["PATH"]}
    ) as process:
        try:
            done = env("--pid", str(process.pid))
        finally:
            process.kill()
    assert done.returncode == 1, done.stderr
    assert "NCCL_SOCKET_IFNAM" in done.stdout and "NCCL_SOCKET_IFNAME" in done.stdout
    said = " ".join(done.stdout.split())
    assert (
        f"compared: 2 variables for NCCL, gloo, vLLM, torch or Ray in the environment of process {process.pid} (sleep)"
        in said
    )


@pytest.mark.parametrize("form", ["shell", "docker", "kubernetes", "ray"])
def test_comments_fit_the_terminal(cluster: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = env("--nodes", cluster, "--as", form).stdout.splitlines()
    wide = [line for line in lines if len(line) > 80 and line.lstrip().startswith("#") and " " in line[70:]]
    assert not wide, wide


@pytest.mark.parametrize("arguments, said", [
    (("--check", "/nowhere/file"), "/nowhere/file: No such file or directory"),
    (("--check", "-"), "no variable is set in it"),
    (("--check", "-", "--as", "ray"), "a comparison is a report"),
    (("--explain", "NCCL_SOCKET_IFNAM"), "did you mean NCCL_SOCKET_IFNAME?"),
    (("--explain", "NO_SUCH_THING_AT_ALL"), "is no variable known here\n"),
    (("--pid", "999999999"), "no such process here"),
])  # fmt: skip
def test_mistakes(arguments: tuple[str, ...], said: str | None) -> None:
    done = env(*arguments)
    assert done.returncode == (2 if said else 3), done.stdout + done.stderr
    assert said is None or said in done.stderr


def test_hostile_names_stay_in_their_line(tmp_path: Path) -> None:
    names = ("a\nunset PATH", "b; rm -rf x")
    script = env("--nodes", f"file:{saved(tmp_path, two_nodes(names, ('eth0$(id)', 'eth0')))}").stdout
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
    assert not any(line.startswith("unset PATH") for line in script.splitlines())
    assert "'=eth0$(id)'" in script


@pytest.mark.parametrize("setting, said", [
    ("NCCL_SOCKET_IFNAME=eth7", "no socket interface found"),
    ("NCCL_SOCKET_IFNAME==eth", "no socket interface found"),
    ("NCCL_SOCKET_IFNAME=^eth,en,lo", "no socket interface found"),
    ("NCCL_SOCKET_IFNAME=eth7,eth0", "names eth7, which is not here"),
    ("GLOO_SOCKET_IFNAME=eth", "Unable to find address for: eth"),
    ("GLOO_SOCKET_IFNAME=eth0,eth7", "Unable to find address for: eth7"),
    ("TP_SOCKET_IFNAME=eth", "no interface with an address here"),
    ("VLLM_HOST_IP=198.51.100.9", "no interface of this node holds"),
    ("HOST_IP=198.51.100.9", "nor does an interface of this node hold"),
    ("NCCL_IB_HCA=mlx4", "leaves none of the usable ports"),
    ("NCCL_IB_HCA==mlx5_0,mlx5_77", "mlx5_77 matches no device"),
    ("NCCL_SOCKET_IFNAME=eth", None),
    ("NCCL_SOCKET_IFNAME=^docker,lo,eno", None),
    ("GLOO_SOCKET_IFNAME=eth0", None),
    ("VLLM_HOST_IP=192.0.2.1", None),
    ("NCCL_IB_HCA=^mlx4", None),
])  # fmt: skip
def test_what_is_named_must_be_on_the_machine(tmp_path: Path, setting: str, said: str | None) -> None:
    """By NCCL's own rules for its lists, and by exact names for the others."""
    nodes, path = saved(tmp_path, two_nodes()[:1]), tmp_path / "env"
    path.write_text(setting + "\n")
    done = env("--nodes", f"file:{nodes}", "--check", str(path), "--nccl-version", "2.27.3", "--as", "json")
    grave = [one for one in json.loads(done.stdout)["findings"] if one["status"] in ("warn", "fail")]
    name = setting.partition("=")[0]
    told = [one["summary"] for one in grave if one["where"].get("setting") == name]
    assert any(said in summary for summary in told) if said else not told, grave
    assert len(told) < 2 or name.startswith("NCCL_IB"), "one thing is said once"


def test_what_no_setting_mends_is_said_as_preflight_says_it(tmp_path: Path) -> None:
    apart = [with_links(eight_rails(f"gpu0{number}"), ("docker0", "172.17.0.1")) for number in (1, 2)]
    done = env("--nodes", f"file:{saved(tmp_path, apart)}")
    said = done.stdout.replace("\n# ", " ")
    assert done.returncode == 1 and "STILL WRONG on gpu01 (bootstrap-interface): NCCL will take docker0" in said
    assert "Nothing has to be set" not in said


def test_a_lone_node_is_told_what_it_would_need_with_others(tmp_path: Path) -> None:
    path = saved(tmp_path, two_nodes()[:1])
    data = json.loads(path.read_text())
    data["nodes"]["gpu01"]["facts"]["host-name"].update(
        name="gpu01", addresses=["127.0.1.1"], failed="", error=None, took_s=0.001
    )
    path.write_text(json.dumps(data))
    shown = env("--nodes", f"file:{path}").stdout
    assert "for this node alone" in shown and "# GLOO_SOCKET_IFNAME: export GLOO_SOCKET_IFNAME=eth0" in shown
    assert not any(line.startswith("export") for line in shown.splitlines())


def test_what_the_environment_has_wrong_already_is_said(tmp_path: Path) -> None:
    path = saved(tmp_path, two_nodes()[:1])
    data = json.loads(path.read_text())
    data["nodes"]["gpu01"]["facts"]["nccl-environment"]["environ"] = {"NCCL_SOCKET_IFNAME": "eth7"}
    path.write_text(json.dumps(data))
    done = env("--nodes", f"file:{path}")
    said = done.stdout.replace("\n# ", " ")
    assert done.returncode == 1 and "STILL WRONG (bootstrap-interface): NCCL will find no interface" in said
    assert "Nothing has to be set" not in said
