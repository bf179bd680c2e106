"""The command line as a person meets it: a real process, real exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parent.parent / "trees" / "healthy-rocev2-gid3-empty.tar.gz"
PLANTED = {
    "HF_TOKEN": "hf_aBcD1234aBcD1234aBcD",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIplanted",
    "AWS_ACCESS_KEY_ID": "AKIAABCDEFGH12345678",
    "OPENAI_API_KEY": "sk-proj-a1b2c3d4a1b2c3d4",
    "WANDB_API_KEY": "0123456789abcdefplanted",
    "VLLM_API_KEY": "planted-let-me-in",
    "GITHUB_TOKEN": "ghp_Zz09Zz09Zz09Zz09Zz09",
    "SLACK_TOKEN": "xoxb-1234567890-planted",
    "NGC_API_KEY": "nvapi-plantedplanted1234",
    "DB_PASSWORD": "planted-hunter2",
    "RAY_AUTH_TOKEN": "planted-ray",
    "HTTPS_PROXY": "http://me:planted-pw@192.0.2.1:3128",
    "NCCL_NET_PLUGIN_SECRET": "planted-nccl",
    "VLLM_EXTRA": "Bearer plantedplanted123456",
    "GLOO_DSN": "planted-dsn",
    "VLLM_HOST_URL": "https://x.blob/?sig=plantedplantedplanted12345",
}


def ncdiag(
    *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ncdiag", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(TREE.parent.parent.parent), **(env or {})},
    )


def test_preflight_here_says_everything() -> None:
    done = ncdiag("preflight", "--format", "json")
    assert done.returncode in (0, 1, 3), done.stderr
    result = json.loads(done.stdout)
    assert result["schema"] == 1 and result["exit"] == done.returncode
    assert sum(result["counts"].values()) == len(result["findings"])
    for finding in result["findings"]:
        assert {"probe", "status", "where", "summary", "source"} <= set(finding)


def test_tree_snapshot_and_text_agree(tmp_path: Path) -> None:
    direct = ncdiag("preflight", "--nodes", f"file:{TREE}", "--format", "json")
    assert direct.returncode in (0, 1, 3), direct.stderr
    saved = ncdiag("collect", "--nodes", f"file:{TREE}", "-o", str(tmp_path / "s.json"))
    assert saved.returncode in (0, 3), saved.stderr
    again = ncdiag("preflight", "--nodes", f"file:{tmp_path}/s.json", "--format", "json")
    assert json.loads(again.stdout)["findings"] == json.loads(direct.stdout)["findings"]
    text = ncdiag("preflight", "--nodes", f"file:{TREE}", "--all")
    assert text.returncode == direct.returncode
    assert f"{json.loads(direct.stdout)['counts']['fail']} fail" in text.stdout


def test_recording_judges_like_the_machine(tmp_path: Path) -> None:
    ncdiag("collect", "--record", "-o", str(tmp_path / "t.tar.gz"), "--only", "shm")
    replay = json.loads(
        ncdiag("preflight", "--nodes", f"file:{tmp_path}/t.tar.gz", "--only", "shm", "--format", "json").stdout
    )
    live = json.loads(ncdiag("preflight", "--only", "shm", "--format", "json").stdout)
    assert [finding["status"] for finding in replay["findings"]] == [finding["status"] for finding in live["findings"]]


def test_no_planted_secret_leaves(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("".join(f"{name}={value}\n" for name, value in PLANTED.items()))
    outputs = []
    for number, arguments in enumerate(
        (
            ["preflight", "--all"],
            ["preflight", "--format", "json"],
            ["collect"],
            ["collect", "--record", "-o", str(tmp_path / "tree")],
            ["preflight", "--env-file", str(tmp_path / "env"), "--format", "json"],
        )
    ):
        done = ncdiag(*arguments, env=PLANTED)
        assert done.returncode in (0, 1, 3), (number, done.stderr)
        outputs += [done.stdout, done.stderr]
    outputs += [
        path.read_text(errors="replace")
        for path in (tmp_path / "tree").rglob("*")
        if path.is_file() and not path.is_symlink()
    ]
    everything = "\n".join(outputs)
    leaked = [name for name, value in PLANTED.items() if value in everything or "planted-pw" in everything]
    assert not leaked


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["preflight", "--only", "shn"], "did you mean shm?"),
        (["preflight", "--only", "clock", "--skip", "clock"], "--only and --skip leave no probe"),
        (["preflight", "--only", "gpus"], "gpus only collects what others judge (gpu-clocks,"),
        (["preflight", "--only", "gpus", "--only", "interfaces"], "ncdiag collect --only gpus --only interfaces"),
        (["preflight", "--only", "gpu-count"], "there are: gpu-clocks, gpu-health, gpu-p2p, gpu-xid"),
        (["reach", "--nodes", "ssh:gpu[01-02]", "--interface", ""], "the name of an interface is missing"),
        (["preflight", "--nodes", "file:/no/such"], "no such file"),
        (["preflight", "--nodes", "moon:1"], "not a fleet"),
        (["preflight", "--probes", "/no/such"], "no such folder"),
        (["preflight", "--env-file", "/no/such"], "No such file"),
        (["preflight", "-o", "/no/such/file"], "cannot write"),
        (["collect", "--record"], "--record writes a tree"),
        (["preflight", "--pid", "4194305"], "no such process here"),
        (["preflight", "--python", "/no/such"], "no such file"),
        (["nonsense"], "No such command"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(arguments: list[str], message: str) -> None:
    done = ncdiag(*arguments)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr


def test_read_only_home_and_no_terminal(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    assert ncdiag("preflight", "--only", "shm", env={"HOME": str(home), "TERM": "dumb"}, cwd=Path("/")).returncode in (
        0,
        1,
        3,
    )


def test_variables_set_options() -> None:
    done = ncdiag("preflight", env={"NCDIAG_PREFLIGHT_FORMAT": "json", "NCDIAG_PREFLIGHT_ONLY": "shm"})
    assert {finding["probe"] for finding in json.loads(done.stdout)["findings"]} == {"shm"}


def test_no_color_when_told() -> None:
    assert "\x1b[" not in ncdiag("preflight", "--all").stdout
    assert "\x1b[" in ncdiag("--color", "always", "preflight", "--all").stdout


def test_result_file_is_private(tmp_path: Path) -> None:
    ncdiag("preflight", "--only", "shm", "-o", str(tmp_path / "r.txt"))
    assert (tmp_path / "r.txt").stat().st_mode & 0o777 == 0o600


def test_closed_pipe_is_quiet() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "ncdiag", "preflight", "--all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TREE.parent.parent.parent)},
        text=True,
    )
    assert process.stdout and process.stderr
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait(60)


def many_lines(folder: Path) -> str:
    """A folder of logs with more evidence than is shown at first."""
    for name in ("a.log", "b.log"):
        (folder / name).write_text(
            "".join(f"rank {rank}: cannot pin: RLIMIT_MEMLOCK is too low\n" for rank in range(4))
        )
    return str(folder)


@pytest.mark.parametrize("place", ["before", "after", "variable", "own-variable"])
def test_common_options_may_stand_after_the_command(tmp_path: Path, place: str) -> None:
    logs = many_lines(tmp_path)
    asked = {
        "before": (["--color", "always", "-v", "diagnose", logs], {}),
        "after": (["diagnose", "--color", "always", "-v", logs], {}),
        "variable": (["diagnose", logs], {"NCDIAG_VERBOSE": "1", "NCDIAG_COLOR": "always"}),
        "own-variable": (["diagnose", logs], {"NCDIAG_DIAGNOSE_VERBOSE": "1", "NCDIAG_DIAGNOSE_COLOR": "always"}),
    }
    arguments, env = asked[place]
    said = ncdiag(*arguments, env=env)
    assert said.stdout.startswith("\x1b["), said.stderr
    assert said.stdout.count(".log:") == 8 and "shows all" not in said.stdout and said.returncode == 1


def test_common_options_after_a_command_of_a_group() -> None:
    for arguments in (("playbook", "list", "-q"), ("playbook", "-q", "list"), ("-q", "playbook", "list")):
        assert ncdiag(*arguments).returncode == 0, arguments


def test_a_hint_is_what_can_be_typed(tmp_path: Path) -> None:
    logs = many_lines(tmp_path)
    usual = ncdiag("diagnose", logs).stdout
    assert usual.count(".log:") == 4 and "more (--all shows all)" in usual
    assert ncdiag("diagnose", logs, "--all").stdout.count(".log:") == 8


@pytest.mark.parametrize(
    "command", [("topo",), ("k8s", "lint"), ("playbook", "run", "--from"), ("diagnose",), ("report",), ("plan",)]
)
def test_the_name_of_a_file_that_cannot_be_read_does_not_reach_the_terminal_as_it_is(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    name = "a\x1b]0;title\x07\x1b[2J.log"
    (tmp_path / name).write_text("- [x\n\t: {")
    done = ncdiag(*command, str(tmp_path / name))
    assert (
        done.returncode in (2, 3)
        and "\x1b" not in done.stdout + done.stderr
        and "\x07" not in done.stdout + done.stderr
    )


def test_collect_says_what_it_could_not_read(tmp_path: Path) -> None:
    done = ncdiag("collect", "--nodes", f"file:{TREE}", "-o", str(tmp_path / "s.json"), env={"COLUMNS": "80"})
    told = [line for line in done.stderr.splitlines() if line.startswith("not read on ")]
    assert done.returncode == 3 and told and max(map(len, told)) <= 80
    assert "not read" not in ncdiag("-q", "collect", "--nodes", f"file:{TREE}", "-o", str(tmp_path / "s.json")).stderr


@pytest.mark.parametrize("command", ["preflight", "bandwidth", "plan", "reach", "bringup", "topo", "collect"])
def test_help_names_whole_numbers_n_and_the_exit_codes(command: str) -> None:
    text = ncdiag(command, "--help").stdout
    assert "INTEGER" not in text and "Exit code: 0" in " ".join(text.split())


@pytest.mark.parametrize("arguments", [("playbook", "run"), ("reach",), ("plan", "--gpus", "X9x8", ".")])
def test_errors_are_broken_where_the_terminal_ends_and_stay_whole_elsewhere(arguments: tuple[str, ...]) -> None:
    ours, theirs = os.openpty()
    whole = ncdiag(*arguments, env={"COLUMNS": "60"})
    seen = subprocess.run(
        [sys.executable, "-m", "ncdiag", *arguments],
        check=False,
        stderr=theirs,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(TREE.parent.parent.parent), "COLUMNS": "60"},
    )
    os.close(theirs)
    narrow = os.read(ours, 1 << 16).decode().replace("\r\n", "\n")
    os.close(ours)
    assert seen.returncode == whole.returncode == 2
    assert max(map(len, narrow.splitlines())) <= 60 < max(map(len, whole.stderr.splitlines()))
    assert narrow.split() == whole.stderr.split(), "nothing is lost"
