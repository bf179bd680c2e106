"""Each rule: a manifest that is right, made wrong in one place, and what is then said of which line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ncdiag.manifests.document import ManifestError
from ncdiag.manifests.lint import RULES
from ncdiag.model import Finding
from ncdiag.playbook.loader import exists
from tests.manifests.bench import bad, found, made, ncdiag, plan

Objects = dict[str, Any]
Change = Callable[[Objects], object]


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    what = plan(tmp_path_factory.mktemp("plan") / "m")
    return {"lws": made(what), "statefulset": made(what, form="statefulset")}


def changed(text: str, change: Change) -> str:
    """`change` gets the objects by kind; the API's service as `Service`, the headless one as `Nodes`."""
    every = list(yaml.safe_load_all(text))
    objects = {"Nodes" if one["spec"].get("clusterIP") else one["kind"]: one for one in every}
    change(objects)
    return "---\n".join(yaml.safe_dump(one, sort_keys=False) for one in every)


def leader(objects: Objects) -> Any:
    return objects["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]


def worker(objects: Objects) -> Any:
    return objects["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]


def one(spec: Any) -> Any:
    return spec["containers"][0]


def command(spec: Any, old: str, new: str) -> object:
    one(spec)["command"] = [word.replace(old, new) if old in word else word for word in one(spec)["command"]]
    return spec


def pod(objects: Objects) -> Any:
    return objects["StatefulSet"]["spec"]["template"]["spec"]


def _env(spec: Any, name: str, value: object) -> None:
    one(spec)["env"].append({"name": name, "value": value})


def _claim(objects: Objects) -> None:
    objects["Service"].clear()
    objects["Service"].update(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models"},
            "spec": {"accessModes": ["ReadWriteOnce"]},
        }
    )


CASES: list[tuple[str, str, Change, str, str, str, str]] = [
    # form, probe, change, status, cause, words of the summary, text on the line that is named
    ("lws", "k8s-host-network", lambda o: (leader(o).pop("hostNetwork"), one(leader(o))["resources"]["limits"].pop("rdma/hca")), "warn", "net-fallback-slow", "pod network", "spec:"),
    ("lws", "k8s-dns", lambda o: worker(o).update(dnsPolicy="ClusterFirst"), "fail", "bootstrap-peer-unreachable", "dnsPolicy ClusterFirst", "dnsPolicy: ClusterFirst"),
    ("lws", "k8s-dns", lambda o: worker(o).pop("dnsPolicy"), "fail", "bootstrap-peer-unreachable", "dnsPolicy ClusterFirst", "spec:"),
    ("lws", "k8s-shm", lambda o: one(worker(o))["volumeMounts"].pop(0), "fail", "shm-too-small", "64 MiB", "volumeMounts:"),
    ("lws", "k8s-shm", lambda o: worker(o)["volumes"][0]["emptyDir"].pop("medium"), "fail", "shm-too-small", "on disk", "emptyDir:"),
    ("lws", "k8s-shm", lambda o: worker(o)["volumes"][0]["emptyDir"].pop("sizeLimit"), "warn", "shm-too-small", "no sizeLimit", "emptyDir:"),
    ("lws", "k8s-shm", lambda o: worker(o)["volumes"][0]["emptyDir"].update(sizeLimit="64Mi"), "fail", "shm-too-small", "64 MiB", "sizeLimit: 64Mi"),
    ("lws", "k8s-shm", lambda o: worker(o)["volumes"][0]["emptyDir"].update(sizeLimit="512Mi"), "warn", "shm-too-small", "512 MiB", "sizeLimit: 512Mi"),
    ("lws", "k8s-shm", lambda o: one(worker(o))["resources"]["limits"].update(memory="8Gi"), "warn", "host-memory-oom", "counts towards it", "sizeLimit: 16Gi"),
    ("lws", "k8s-shm", lambda o: worker(o)["volumes"].pop(0), "fail", "shm-too-small", "'shm', which is not there", "- name: shm"),
    ("lws", "k8s-ipc-lock", lambda o: one(worker(o)).pop("securityContext"), "fail", "memlock-limit", "without IPC_LOCK", "- name: vllm"),
    ("lws", "k8s-rdma", lambda o: one(worker(o))["resources"]["limits"].pop("rdma/hca"), "warn", "net-fallback-slow", "no RDMA device", "resources:"),
    ("lws", "k8s-gpus", lambda o: one(worker(o))["resources"].update(requests={"nvidia.com/gpu": 4}), "fail", "visible-devices-conflict", "differ", "nvidia.com/gpu: 4"),
    ("lws", "k8s-gpus", lambda o: one(worker(o)).pop("resources"), "fail", "visible-devices-conflict", "no GPU is asked for", "- name: vllm"),
    ("lws", "k8s-gpus", lambda o: _env(worker(o), "CUDA_VISIBLE_DEVICES", "0,1"), "warn", "visible-devices-conflict", "by hand", "env:"),
    ("lws", "k8s-parallel", lambda o: o["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"].update(size=3), "warn", "parallel-size-mismatch", "8 stand idle", "command:"),
    ("lws", "k8s-parallel", lambda o: one(worker(o))["resources"]["limits"].update({"nvidia.com/gpu": 4}), "fail", "parallel-size-mismatch", "wants 16 GPUs, its pods have 1 x 8 + 1 x 4 = 12", "command:"),
    ("lws", "k8s-parallel", lambda o: command(leader(o), "8", "$(TP)"), "unknown", "parallel-size-mismatch", "variable", "command:"),
    ("lws", "k8s-layout", lambda o: o["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"].update(size=3), "fail", "rank-layout-wrong", "--nnodes 2, and 3 pods", "command:"),
    ("lws", "k8s-layout", lambda o: one(leader(o)).update(command=["vllm", "serve", "/models/m", "-tp", "16", "--nnodes", "2"]), "warn", "rank-layout-wrong", "every layer's all-reduce", "command:"),
    ("lws", "k8s-layout", lambda o: (o["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"].update(size=3), command(worker(o), '"$LWS_WORKER_INDEX"', "1")),
     "fail", "rank-layout-wrong", "all 2 pods of this template start with --node-rank 1", "- name: vllm"),
    ("lws", "k8s-probe-budget", lambda o: one(leader(o)).pop("startupProbe"), "fail", "slow-load-peer-timeout", "livenessProbe ends it after 60 s", "livenessProbe:"),
    ("lws", "k8s-probe-budget", lambda o: one(leader(o))["startupProbe"].update(failureThreshold=60), "warn", "slow-load-peer-timeout", "startupProbe ends it after 600 s", "startupProbe:"),
    ("lws", "k8s-worker-probe", lambda o: one(worker(o)).update(readinessProbe={"httpGet": {"path": "/health", "port": 8000}}), "fail", "rank-missing", "serves nothing", "readinessProbe:"),
    ("lws", "k8s-order", lambda o: o["LeaderWorkerSet"]["spec"].update(startupPolicy="LeaderReady"), "fail", "rank-missing", "when the leader is ready", "startupPolicy: LeaderReady"),
    ("lws", "k8s-order", lambda o: o["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"].update(restartPolicy="None"), "warn", "rank-missing", "comes back alone", "restartPolicy: None"),
    ("lws", "k8s-environment", lambda o: _env(worker(o), "NCCL_SOCKET_IFNAM", "eth0"), "warn", "env-unknown-or-invalid", "NCCL_SOCKET_IFNAME", "- name: NCCL_SOCKET_IFNAM"),
    ("lws", "k8s-environment", lambda o: _env(worker(o), "NCCL_IB_TIMEOUT", "22s"), "warn", "env-unknown-or-invalid", "text behind the number", "- name: NCCL_IB_TIMEOUT"),
    ("lws", "k8s-environment", lambda o: _env(worker(o), "NCCL_IB_TIMEOUT", 22), "fail", "env-unknown-or-invalid", "is no text", "value: 22"),
    ("lws", "k8s-environment", lambda o: _env(worker(o), "NCCL_DEBUG_FILE", "/tmp/x"), "warn", "env-unknown-or-invalid", "no %p", "- name: NCCL_DEBUG_FILE"),
    ("statefulset", "k8s-environment", lambda o: _env(pod(o), "VLLM_HOST_IP", "192.0.2.1"), "fail", "node-ip-wrong-interface", "the same in all pods", "- name: VLLM_HOST_IP"),
    ("lws", "k8s-interface", lambda o: one(worker(o)).update(env=one(worker(o))["env"][:1]), "warn", "socket-ifname-wrong", "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME", "env:"),
    ("lws", "k8s-alike", lambda o: _env(worker(o), "NCCL_IB_GID_INDEX", "3"), "warn", "env-unknown-or-invalid", "3 here and not set in leader", "- name: NCCL_IB_GID_INDEX"),
    ("lws", "k8s-images", lambda o: (one(leader(o)).update(image="vllm/vllm-openai:v0.11.0"), one(worker(o)).update(image="vllm/vllm-openai:v0.10.2")),
     "fail", "version-mismatch", "vllm-openai is 0.10.2 here and 0.11.0 in leader", "image: vllm/vllm-openai:v0.10.2"),
    ("lws", "k8s-nodes", lambda o: worker(o).pop("nodeSelector"), "warn", "hca-mismatch-between-nodes", "nothing says which nodes", "spec:"),
    ("lws", "k8s-apart", lambda o: worker(o).pop("affinity"), "warn", "port-in-use", "same ports", "spec:"),
    ("lws", "k8s-model", lambda o: one(worker(o))["volumeMounts"].pop(), "fail", "model-path-missing", "no volume is mounted at /models/m", "volumeMounts:"),
    ("lws", "k8s-model", lambda o: worker(o)["volumes"].pop(), "fail", "model-path-missing", "'models', which is not there", "volumeMounts:"),
    ("lws", "k8s-model", lambda o: worker(o)["volumes"].__setitem__(1, {"name": "models", "emptyDir": {}}), "fail", "model-path-missing", "begins empty", "volumeMounts:"),
    ("lws", "k8s-model", lambda o: command(worker(o), "/models/m", "acme/m"), "warn", "storage-slow", "again at every start", "volumeMounts:"),
    ("lws", "k8s-model", _claim, "fail", "model-path-missing", "ReadWriteOnce", "- name: models"),
    ("lws", "k8s-ports", lambda o: command(leader(o), "8000", "8080"), "warn", "bootstrap-peer-unreachable", "listens on port 8080, the container declares 8000", "ports:"),
    ("lws", "k8s-ports", lambda o: (command(leader(o), "8000", "8080"), one(leader(o))["ports"].append({"containerPort": 8080})), "fail", "bootstrap-peer-unreachable", "startupProbe asks port 8000", "port: http"),
    ("lws", "k8s-ports", lambda o: o["Service"]["spec"]["ports"][0].update(targetPort=9000), "fail", "bootstrap-peer-unreachable", "sends to port 9000", "ports:"),
    ("statefulset", "k8s-service", lambda o: o["Nodes"]["spec"].pop("publishNotReadyAddresses"), "fail", "bootstrap-peer-unreachable", "only when they are ready", "serviceName:"),
    ("statefulset", "k8s-service", lambda o: o["StatefulSet"]["spec"].pop("serviceName"), "fail", "bootstrap-peer-unreachable", "no serviceName", "spec:"),
    ("statefulset", "k8s-order", lambda o: o["StatefulSet"]["spec"].pop("podManagementPolicy"), "fail", "rank-missing", "one after the other", "spec:"),
    ("statefulset", "k8s-parallel", lambda o: o["StatefulSet"]["spec"].update(replicas=1), "fail", "parallel-size-mismatch", "1 x 8 = 8", "command:"),
    ("statefulset", "k8s-layout", lambda o: o["StatefulSet"]["spec"].update(replicas=1), "fail", "rank-missing", "--nnodes 2, and 1 pod", "command:"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "probe", "change", "status", "cause", "words", "line"),
    CASES,
    ids=[f"{case[1]}-{number}" for number, case in enumerate(CASES)],
)
def test_one_thing_made_wrong(
    right: dict[str, str], form: str, probe: str, change: Change, status: str, cause: str, words: str, line: str
) -> None:
    text = changed(right[form], change)
    said = [finding for finding in bad(found(text, 754)) if finding.probe == probe]
    match = [
        finding
        for finding in said
        if (finding.status.value, finding.cause) == (status, cause) and words in finding.summary
    ]
    assert match, [(finding.status.value, finding.cause, finding.summary) for finding in said]
    assert line in text.splitlines()[match[0].where["line"] - 1]
    assert match[0].source == f"m.yaml:{match[0].where['line']}"
    assert match[0].remedy
    assert exists(cause)


def test_every_rule_is_tried() -> None:
    assert {case[1] for case in CASES} == set(RULES)


def _kinds(text: str) -> list[tuple[str, str]]:
    return [(finding.probe, finding.status.value) for finding in bad(found(text))]


RAY = """
kind: RayCluster
metadata: {name: r}
spec:
  headGroupSpec:
    template: {spec: {containers: [{name: head, image: rayproject/ray, command: [sh, -c, "vllm serve acme/x-70B -tp 8 -pp 2 --distributed-executor-backend ray"]}]}}
  workerGroupSpecs:
  - groupName: gpus
    replicas: %d
    template: {spec: {containers: [{name: w, image: rayproject/ray, resources: {limits: {nvidia.com/gpu: 8}}}]}}
"""


def test_a_head_without_gpus_and_shared_memory_of_kuberay_are_right() -> None:
    said = _kinds(RAY % 2)
    assert ("k8s-parallel", "fail") not in said
    assert not [one for one in said if one[0] in ("k8s-shm", "k8s-gpus", "k8s-layout")]
    assert ("k8s-parallel", "fail") in _kinds(RAY % 1)
    assert not [one for one in _kinds(RAY % 4) if one[0] == "k8s-parallel"], "room for two engines"


IMAGES = [
    # head's, workers', what is said
    ("rayproject/ray:2.46.0-py311", "rayproject/ray:2.46.0-py311-gpu", None),
    ("rayproject/ray:2.46.0-py311", "mirror.example:5000/hub/rayproject/ray:2.46.0-py311-cu124", None),
    ("rayproject/ray:2.46.0-py311", "rayproject/ray-ml:2.46.0-py311-gpu", None),
    ("vllm/vllm-openai", "vllm/vllm-openai", None),
    ("vllm/vllm-openai@sha256:aa", "vllm/vllm-openai:v0.11.0@sha256:aa", None),
    ("rayproject/ray:2.46.0-py311", "rayproject/ray:2.44.1-py311", ("fail", "ray is 2.44.1 here and 2.46.0 in head")),
    ("rayproject/ray:2.46.0-py311", "rayproject/ray:2.46.0-py310", ("fail", "Python is 310 here and 311 in head")),
    ("vllm/vllm-openai:v0.10.1", "vllm/vllm-openai:v0.10.1.post1", ("fail", "0.10.1.post1 here and 0.10.1 in head")),
    ("rayproject/ray:2.46.0", "vllm/vllm-openai:v0.11.0", ("warn", "vllm-openai is 0.11.0 here and ray 2.46.0 in head")),
    ("vllm/vllm-openai:v0.11.0", "vllm/vllm-openai:latest", ("warn", "vllm-openai is latest here and v0.11.0 in head")),
    ("vllm/vllm-openai:v0.11.0", "vllm/vllm-openai", ("warn", "of no tag here and v0.11.0")),
    ("a/x@sha256:aa", "a/x@sha256:bb", ("warn", "digest of x is another one here than in head")),
    ("rayproject/ray:2.46.0", "example/own:main", ("warn", "own here and ray")),
]  # fmt: skip


@pytest.mark.parametrize(("head", "workers", "expected"), IMAGES, ids=[f"{one[0]}-{one[1]}" for one in IMAGES])
def test_images_of_a_ray_cluster(head: str, workers: str, expected: tuple[str, str] | None) -> None:
    text = (RAY % 2).replace("rayproject/ray,", f'"{head}",', 1).replace("rayproject/ray,", f'"{workers}",', 1)
    said = [finding for finding in found(text) if finding.probe == "k8s-images"]
    assert len(said) == 1
    if expected is None:
        assert said[0].status.value == "ok", said[0].summary
        return
    assert (said[0].status.value, said[0].cause, said[0].where["line"]) == (expected[0], "ray-version-mismatch", 10)
    assert expected[1] in said[0].summary and workers in text.splitlines()[9]


SERVE = """
kind: RayService
metadata: {name: r}
spec:
  serveConfigV2: |
    applications:
    - args:
        llm_configs:
        - model_loading_config: {model_id: m, model_source: acme/m}
          engine_kwargs: {tensor_parallel_size: 8, pipeline_parallel_size: %s}
  rayClusterConfig:
    headGroupSpec: {template: {spec: {containers: [{name: head, image: x}]}}}
    workerGroupSpecs:
    - {groupName: g, replicas: 2, numOfHosts: 2, template: {spec: {containers: [{name: w, image: x, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
"""


def test_the_sizes_of_a_ray_service_are_read() -> None:
    assert ("k8s-parallel", "fail") not in _kinds(SERVE % "4")
    (said,) = [finding for finding in bad(found(SERVE % "8")) if finding.probe == "k8s-parallel"]
    assert (said.observed, said.expected, said.where["line"]) == (32, 64, 5)
    with pytest.raises(ManifestError, match=r"m\.yaml:5: serveConfigV2: .*not valid YAML"):
        found(SERVE % "[")


DEPLOYMENT = """
kind: Deployment
metadata: {name: d}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - {name: c, image: vllm/vllm-openai, args: [--model, acme/x-7B, -tp, "2"], resources: {limits: {nvidia.com/gpu: 2}},
         volumeMounts: [{name: s, mountPath: /dev/shm}, {name: c, mountPath: /root/.cache/huggingface}]}
      volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 8Gi}}, {name: c, hostPath: {path: /cache}}]
"""


def test_replicas_that_are_engines_of_their_own_are_right() -> None:
    assert _kinds(DEPLOYMENT) == []
    assert [one for one in _kinds(DEPLOYMENT.replace('"2"', '"2", --nnodes, "3"')) if one[0] == "k8s-order"]
    assert ("k8s-parallel", "fail") in _kinds(DEPLOYMENT.replace('"2"', '"4"'))


def test_variables_of_a_config_map_are_read_where_they_stand() -> None:
    text = (
        DEPLOYMENT.replace("resources:", "envFrom: [{configMapRef: {name: net}}], resources:")
        + "---\nkind: ConfigMap\nmetadata: {name: net}\ndata:\n  NCCL_DEBUG: info\n  NCCL_IB_TIMEOUT: 22s\n"
    )
    (said,) = bad(found(text))
    assert ("NCCL_IB_TIMEOUT=22s" in said.summary, text.splitlines()[said.where["line"] - 1]) == (
        True,
        "  NCCL_IB_TIMEOUT: 22s",
    )


def test_what_runs_no_engine_is_passed_over() -> None:
    (said,) = found("kind: Deployment\nspec: {template: {spec: {containers: [{name: c, image: nginx}]}}}\n")
    assert (said.status.value, said.probe) == ("skip", "k8s-engine")


def test_accelerators_without_nccl_are_passed_over() -> None:
    (said,) = found(DEPLOYMENT.replace("nvidia.com/gpu", "google.com/tpu"))
    assert (said.status.value, "google.com/tpu" in said.summary) == ("skip", True)


def test_a_ray_service_without_sizes_has_one_gpu_a_replica() -> None:
    said = found(
        (SERVE % "1").replace(", pipeline_parallel_size: 1", "").replace("tensor_parallel_size: 8", "max_model_len: 9")
    )
    assert [one.status.value for one in said if one.probe == "k8s-parallel"] == ["ok"]
    assert not [one for one in said if one.probe in ("k8s-rdma", "k8s-host-network")]


@pytest.mark.parametrize(
    "text",
    [
        "kind: LeaderWorkerSet\nspec: text\n",
        "kind: StatefulSet\nspec: {template: {spec: {containers: [1, {image: vllm, args: {a: b}, env: [1, {name: 2, value: [x]}], resources: [], ports: [x], volumeMounts: x}]}}}\n",
        "kind: Pod\nmetadata: []\nspec: {containers: {a: b}, volumes: {a: b}}\n",
        "kind: RayCluster\nspec: {headGroupSpec: [], workerGroupSpecs: {a: b}}\n",
        "kind: Pod\nspec: {containers: [{image: vllm, command: [vllm, serve, 1], startupProbe: [], livenessProbe: {httpGet: [], periodSeconds: x},"
        " resources: {limits: {nvidia.com/gpu: x}}, securityContext: x}]}\n",
    ],
)
def test_other_shapes_break_nothing(text: str) -> None:
    assert not [finding for finding in found(text) if "broke" in finding.summary]


def test_the_command_in_every_format(right: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(changed(right["lws"], lambda o: worker(o).pop("dnsPolicy")))
    code, text = ncdiag("k8s", "lint", str(file))
    assert code == 1
    assert f"{file}:" in text
    assert "[k8s-dns]" in text
    code, out = ncdiag("k8s", "lint", str(file), "--format", "json")
    data = json.loads(out)
    assert (code, data["exit"]) == (1, 1)
    assert [one["where"]["file"] for one in data["findings"] if one["status"] == "fail"] == [str(file)]
    for format_ in ("html", "junit", "prometheus"):
        assert ncdiag("k8s", "lint", str(file), "--format", format_)[0] == 1


def test_the_order_is_that_of_the_files(right: dict[str, str]) -> None:
    said: list[Finding] = found(right["lws"])
    assert [finding.where["line"] for finding in said] == sorted(finding.where["line"] for finding in said)


@pytest.mark.parametrize("name", ["kubernetes-init-container.yaml", "kubernetes-job.yaml"])
def test_the_examples_are_right(name: str) -> None:
    file = Path(__file__).parents[2] / "docs" / "automation" / name
    assert [finding.summary for finding in bad(found(file.read_text()))] == []


def test_every_rule_is_described() -> None:
    text = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text()
    assert {rule for rule in RULES if f"`{rule}`" not in text} == set()
