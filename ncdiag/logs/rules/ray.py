"""Ray: resources, placement groups, nodes, GCS, environments."""

from __future__ import annotations

from ncdiag.explain import Says
from ncdiag.logs.kinds import IDLE, NO_GPU
from ncdiag.logs.model import rule

SEES_NONE = "a process sees no GPU at all"

RULES = (
    rule("ray-resources-infeasible", Says.STRONG, ("No available node types can fulfill resource request", "are infeasible", "is infeasible", "cannot be scheduled right now", "No available node types can fulfill"),
         "no node of the Ray cluster can satisfy {what}", r"(?P<what>\{[^}]*\})|infeasible|cannot be scheduled", unless=r"'node:(?!__)[^'\s]+'",
         remedy="compare `ray status` with what is asked: nodes that did not join, GPUs per node, bundles that must fit one node"),
    rule("ray-resources-infeasible", Says.STRONG, ("Failed to create placement group", "Cannot provide a placement group of", "placement group creation timed out", "Placement group creation timed out", "GetTimeoutError: Failed to get placement group"),
         "Ray could not place the bundles in time", candidates=("ray-placement-group-leaked",), remedy="compare `ray status` with what is asked: nodes that did not join, GPUs taken by other placement groups, bundles that must fit one node"),
    rule("ray-resources-infeasible", Says.HINT, ("Waiting for creating a placement group of specs for", "Waiting for removing a placement group"), "the placement group has waited {s} s: not enough free GPUs, or a node has not joined", r"for (?P<s>\d+) seconds", candidates=("ray-placement-group-leaked", "ray-gcs-unreachable"),
         remedy="`ray status` and `ray list nodes`: which node has not joined, which placement group holds GPUs"),
    rule("ray-resources-infeasible", Says.NAMED, ("exceeds the total number of available GPUs", "exceeds available GPUs"), "more GPUs are asked for than the Ray cluster has", r"(?:GPUs|available)", unless="World size|WARNING"),
    rule("ray-resources-infeasible", Says.STRONG, ("arallel size (",), "more GPUs are asked for than the Ray cluster has: {what}", r"(?P<what>(?:[Tt]ensor|[Pp]ipeline)[ -]?[Pp]arallel size \(\d+\) exceeds available GPUs \(\d+\))", candidates=("parallel-size-mismatch",),
         remedy="`ray status`: which node has not joined; else a parallel size that fits the GPUs there are"),
    rule("ray-resources-infeasible", Says.STRONG, ("pending placement groups", "pending tasks/actors"), "Ray has demands that it cannot place: {what}", r"(?P<what>\{[^}]*'?GPU'?[^}]*\}[^:]*): \d+\+ pending"),
    rule("ray-placement-group-leaked", Says.STRONG, ("reserved in placement groups",), "placement groups hold all GPUs of the cluster ({a} of {b})", r"(?P<a>\d+)(?:\.0)?/(?P<b>(?P=a))(?:\.0)? GPU\b.*reserved in placement groups",
         remedy="`ray list placement-groups`; remove the old one (ray.util.remove_placement_group) or restart Ray; end duplicate services"),
    rule("ray-placement-group-leaked", Says.STRONG, ("Current node has no GPU available", "accelerator_type:"), "Ray's node has a GPU by type, but none is free: an older placement group or actor holds it",
         r"Current node has no GPU available.*accelerator_type:\w+(?!.*'GPU': [1-9])", lines=3, remedy="`ray list placement-groups` and `ray list actors`; remove the old ones or restart Ray; end duplicate services"),
    rule("ray-driver-without-gpu", Says.STRONG, ("Current node has no GPU available",), "the engine's driver runs on a Ray node without a GPU", candidates=("ray-placement-group-leaked",), unless="accelerator_type", remedy="start the driver on a GPU node, or give its task or job num_gpus / a placement group with GPUs"),
    rule("visible-devices-conflict", Says.STRONG, ("No CUDA GPUs are available", "no CUDA-capable device is detected", "no GPUs found!", "No HIP GPUs are available", "ProcessGroupNCCL is only supported with GPUs"), SEES_NONE,
         candidates=("driver-library-missing",), remedy="look at CUDA_VISIBLE_DEVICES (HIP_, ROCR_VISIBLE_DEVICES) of this process and at --gpus of its container; then at the driver", kind=NO_GPU),
    rule("ray-nested-environment", Says.NAMED, ("Failed to merge the Job's runtime env", "must not be provided", "Perhaps you called ray.init twice", "Maybe you called ray.init twice", "RAY_JOB_CONFIG_JSON_ENV_VAR", "When connecting to an existing cluster"),
         "an outer Ray job's environment breaks this ray.init", r"runtime env|(?:num_cpus|num_gpus|resources|object_store_memory|_system_config|labels)[^\n]*must not be provided|ray\.init twice|RAY_JOB_CONFIG|existing cluster", unless=r"\bINFO\s", remedy="inside a Ray job call ray.init() without resources or runtime_env, or unset RAY_ADDRESS and RAY_JOB_CONFIG_JSON_ENV_VAR for the inner one"),
    rule("ray-nested-environment", Says.STRONG, ("runtime_env", "runtime env"), "Ray cannot set up the runtime environment", r"(?i)(?:Failed to set up runtime environment|RuntimeEnvSetupError|conflict|runtime_env.*(?:invalid|not allowed|fail))", unless="INFO"),
    rule("ray-nested-environment", Says.STRONG, ("Module: http",), "ray.init took an http address for that of a cluster: mostly RAY_ADDRESS of `ray job submit`, which reached the job's own program",
         r"Module: https? does not (?:have ClientBuilder|exist)", remedy="unset RAY_ADDRESS for the job's program (or ray.init(address='auto') in it), give the address of the dashboard to `ray job submit --address` only"),
    rule("ray-node-lost", Says.NAMED, ("This node has be",), "the head had taken this node for dead: its raylet ends itself", r"This node has bee[nm] marked (?:as )?dead", remedy="look why its heartbeats were late: load and memory of the node, its network, a paused machine; then `ray start` on it again"),
    rule("", Says.CASCADE, ("StandardAutoscaler: Terminating", "Removing "), "the autoscaler took idle nodes away", r"\(idle\)|[Rr]emoving \d+ nodes of type \S+ \(idle\)", condition=True, kind=IDLE),
    rule("ray-node-lost", Says.STRONG, ("missed too many heartbeats", "has been marked dead", "NodeDiedError", "its node has died", "due to missing too many heartbeats", "node was terminated", "Node death", "node died", "Raylet is terminated", "raylet died", "lost node", "is marked dead", "marked as dead", "GCS failed to check the health of this node"),
         "a node left the Ray cluster", r"address: (?P<node>[\w.:-]+?)[ ,]|", remedy="look at that node: raylet.out, dmesg (OOM), power, network; then `ray start` on it again"),
    rule("ray-gcs-unreachable", Says.STRONG, ("Failed to connect to GCS", "Failed to send request to gcs", ":6379: Failed to connect to remote host", "Failed to get cluster ID from GCS server", "Unable to connect to GCS", "Couldn't connect to GCS", "Timed out while waiting for GCS to become available", "GCS is not available", "unable to connect to the GCS", "could not connect to GCS", "Failed to get the cluster metadata", "Failed to connect to Ray cluster at",
                                           "Could not find any running Ray instance", "Failed to connect to the default Ray cluster address", "ray cluster at address is not available", "GCS may be dead", "Ray Client failed to connect", "ConnectionError: ray client connection timeout", "Failed to check health of GCS", "Disconnected from GCS", "Timed out trying to connect to GCS", "InvalidAuthToken", "Initialization failure from server"),
         "the Ray head at {peer} is not reached", r"(?:address(?:es)? |cluster at |at )(?P<peer>[\w.-]+:\d+)|", candidates=("bootstrap-blocked-firewall", "node-ip-wrong-interface"),
         remedy="is the head up, and does it announce an address that this node reaches? open 6379 and the worker ports; the same RAY_AUTH_MODE and token everywhere"),
    rule("ray-resources-infeasible", Says.STRONG, ("Waiting for all ray workers to be active timed out",), "not all Ray workers joined the head in time", candidates=("rank-missing", "ray-gcs-unreachable"),
         remedy="look at the pods or nodes of the workers that did not join: their own log, their command, the head's address in it"),
    rule("", Says.SYMPTOM, ("Wait for all ray workers to be active",), "the head waits for Ray workers: {what}", r"(?P<what>\d+/\d+ is active)", candidates=("rank-missing", "ray-gcs-unreachable", "ray-resources-infeasible")),
    rule("ray-gcs-unreachable", Says.HINT, ("Failed to register worker", "failed to register in time", "raylet client: IOError", "The raylet process failed to start", "Failed to connect to socket"), "a worker cannot reach its raylet", r"(?i)regist|raylet|plasma|socket"),
    rule("stale-process", Says.STRONG, ("does not match persisted value", "Found existing Ray instance", "another Ray instance", "existing ray processes", "File exists: '/psm_", "FileExistsError: [Errno 17] File exists: '/psm", "zombie", "left-over", "leftover process", "stale lock", "orphan"), "an earlier run still holds something here",
         r"(?i)session name|ray instance|ray processes|psm_|<defunct>|zombie process|left-?over process(?: (?P<pid>\d+))?|stale lock|orphan(?:ed)? (?:process|worker)", remedy="end the earlier run's processes (`ray stop`, ps, nvidia-smi), then start again"),
)
