"""Versions that differ or do not fit, variables that are wrong, known bugs."""

from __future__ import annotations

from ncdiag.explain import Says
from ncdiag.logs.model import rule

RULES = (
    rule("nccl-version-mismatch", Says.NAMED, ("Mismatched NCCL version detected", "Mismatched NCCL git version"), "ranks {a} and {b} run different NCCL versions ({va} and {vb})",
         r"rank (?P<a>\d+) version (?P<va>\d+) rank (?P<b>\d+) version (?P<vb>\d+)|git version", remedy="the same NCCL on all nodes: compare `NCCL version` lines and libnccl.so.2 that each process has mapped"),
    rule("nccl-version-mismatch", Says.NAMED, ("nvidia-nccl-cu",), "the installed NCCL ({have}) is not the one that torch needs ({want})",
         r"requires nvidia-nccl-cu\d+(?P<want>[=<>~!]=?[\w.]+).*you have nvidia-nccl-cu\d+ (?P<have>[\w.]+)", condition=True, remedy="install the NCCL that torch pins, or a torch that pins the newer one"),
    rule("nccl-version-mismatch", Says.NAMED, ("undefined symbol: nccl", "undefined symbol: pnccl", "symbol ncclC", "has no attribute 'nccl"), "the libnccl that is loaded is older than torch needs",
         r"undefined symbol: p?nccl\w+|libnccl\S*: undefined symbol|symbol nccl\w+.*not (?:found|defined)", unless=r"NET/Plugin|NCCL INFO|nccl(?:Net|CollNet|Tuner|Profiler|Gin)\w*(?:Plugin|_v\d)", remedy="take other libnccl.so.2 off LD_LIBRARY_PATH and LD_PRELOAD; install the version that torch pins"),
    rule("nccl-version-mismatch", Says.HINT, ("Message truncated : received",), "ranks exchange messages of different form: different NCCL builds, or mixed-up communicators", candidates=("rank-layout-wrong",)),
    rule("nccl-version-mismatch", Says.STRONG, ("Failed to load NCCL library from", "libnccl.so.2: cannot open shared object file"), "the NCCL library cannot be loaded", r"Failed to load NCCL library|cannot open"),
    rule("nccl-version-mismatch", Says.STRONG, ("NCCL library",), "NCCL is older than what is wanted", r"(?i)NCCL library (?:version )?(?:is too old|mismatch)|requires NCCL (?:>=|version)"),
    rule("ray-version-mismatch", Says.NAMED, ("Version mismatch: The cluster was started with",), "Ray or Python differs on {node} from the cluster",
         r"(?:This process on (?:node )?(?P<node>[\w.:-]+) was started)|Ray: (?P<a>\S+)", unless=r"WARNING|Python patch version mismatch", lines=7, remedy="the same Ray and Python (to the patch level) in all images and environments"),
    rule("", Says.CASCADE, ("Python patch version mismatch",), "Ray notes different Python patch versions; a warning only", condition=True),
    rule("ray-version-mismatch", Says.STRONG, ("different Ray version", "Ray version mismatch", "Changing the ray version", "version of Ray", "Python version mismatch", "The version of Python"), "Ray or Python differs between the nodes", r"(?i)(?:mismatch|differ|doesn't match|does not match|not match|incompatible|Changing the ray version is not allowed)", unless="patch version"),
    rule("version-mismatch", Says.NAMED, ("which is incompatible",), "an installed set breaks its own requirements: {what}", r"(?P<what>\S+ \S+ requires [^,]+, but you have \S+ \S+)", unless=r"nvidia-nccl-cu", condition=True),
    rule("version-mismatch", Says.NAMED, ("undefined symbol:",), "a compiled part was built for another version: {what}", r"(?P<what>[\w./-]+\.so\S*): undefined symbol", unless=r"\(ignored\)|undefined symbol: p?nccl|libnccl-net|NET/Plugin|No plugin|TUNER|ncclNet|ncclColl|NCCL INFO",
         remedy="reinstall the package against this torch and CUDA (or the pinned set in a fresh environment)"),
    rule("version-mismatch", Says.NAMED, ("mismatches the version that was used to compile", "compiled with different CUDA major versions", "compiled using NumPy 1.x cannot be run", "numpy.dtype size changed", "is not compatible with this version", "compiled against a different version", "Torch not compiled with CUDA enabled",
                                      "Transformers does not recognize this architecture", "CXXABI_", "GLIBCXX_", "GLIBC_2"), "packages that do not fit each other",
         r"mismatches|different|cannot be run|size changed|not compatible|Torch not compiled|does not recognize|not found", candidates=()),
    rule("version-mismatch", Says.STRONG, ("no kernel image is available for execution", "cudaErrorNoKernelImageForDevice", "cannot import name", "libcudart.so", "libcublas.so", "libcudnn", "libtorch", "operator torchvision::nms does not exist", "ImportError: /"),
         "a package was built for another version of its partner", r"no kernel image|NoKernelImage|cannot import name|cannot open shared object file|does not exist|ImportError", unless="NCCL INFO"),
    rule("version-mismatch", Says.STRONG, (" does not match ", " doesn't match ", "version mismatch", "version incompatibility", "is required for a normal functioning", "VersionConflict", "less than the minimum required version", "incompatible Protobuf", "Descriptors cannot be created directly", "NumPy 2.0 or less", " but found ", " but you have "),
         "two installed packages must fit each other and do not: {what}",
         r"(?P<what>\b[\w.-]{1,60} version \(?v?\d[\w.+]{0,40}\)? does(?:n't| not) match (?:the )?[\w. -]{0,60}?\(?v?\d+\.\d[\w.+]*\)?|\b[\w.-]{1,60}(?:\[[\w,-]{1,60}\])?[<>=!~]=?\d[\w.,<>=!~*]{0,60} is required for a normal functioning[^\n]{0,120}|\b\w{0,20}VersionConflict: [^\n]{1,160}|\b[\w.-]{1,60} is installed with version \S{1,40}, which is less than the minimum required version \S+"
         r"|[Pp]ackage version mismatch\. Found [^\n]{1,120}|cuDNN version incompatibility: [^\n]{1,140}|Detected incompatible Protobuf Gencode/Runtime versions[^\n]{0,120}|Descriptors cannot be created directly|\b\w{1,40} needs NumPy [\d.]+ or less[^\n]{0,40}|(?:ImportError|RuntimeError|AssertionError|ValueError)\b[^\n]*?\brequires? [\w.\[\]-]{1,60}? ?(?:version ?)?[<>=~]=? ?v?\d[^\n]{0,60}\b(?:but found|but you have|but got|found version)\b[^\n]{0,60})",
         unless=r"APIs are compatible|accepting this combination|nccl|driver|which is incompatible|Firmware|firmware|protocol version|schema", remedy="install the versions that belong together (the pinned set of the engine's release), the same on all nodes: pip check, pip list"),
    rule("version-mismatch", Says.STRONG, ("Extra positional arguments provided", "Configuration mismatch detected for engine", "Can't get attribute", "unsupported pickle protocol", "Unexpected keyword argument", "Object missing required field", "Object contains unknown field"),
         "the two sides of a message come from different versions or settings", r"Extra positional|Configuration mismatch|Can't get attribute|pickle protocol|Unexpected keyword argument|missing required field|unknown field"),
    rule("version-mismatch", Says.STRONG, ("No module named 'vllm", "No module named 'torch", "No module named 'flash", "No module named 'ray", "No module named 'transformers", "No module named 'sglang", "No module named 'flashinfer", "No module named 'sgl_kernel"), "a package is missing where it ran: {what}", r"Error.*No module named '(?P<what>[^']+)'", unless=r"WARNING|INFO|DEBUG|Failed to import"),
    rule("version-mismatch", Says.STRONG, ("does not support ray",), "the platform plug-in that the head has is missing on a worker node", r"current platform \S+ does not support ray"),
    rule("version-mismatch", Says.STRONG, ("KV cache specs for the same layer are different across workers", "different across workers"), "the nodes were started with different settings or versions of the engine", candidates=("engine-exception",)),
    rule("framework-version-bug", Says.STRONG, ("INTERNAL ASSERT FAILED", "please report a bug", "please report this bug", "This is a bug in", "internal compiler error", "LLVM ERROR", "PassManager::run failed"),
         "an internal check of the framework failed", candidates=("engine-exception",), remedy="look for the message in the release notes and issues of this version; try the next or the previous release"),
    rule("framework-version-bug", Says.STRONG, ("Error executing method start_worker_execution_loop",), "the engine's own worker loop failed while serving, not a node's set-up", candidates=("engine-exception",),
         remedy="read the exception below it; look for it in the issues of this version; upgrade or avoid the feature"),
    rule("framework-version-bug", Says.HINT, ("RayChannelTimeoutError", "RayChannelError", "Timed out waiting for object available to read"), "Ray's compiled graph timed out", candidates=("rank-stuck-outside-collective",)),
    # --- settings
    rule("env-unknown-or-invalid", Says.NAMED, ("Invalid value",), "{name}={value} is not a value that NCCL reads; it uses its default", r"Invalid value (?P<value>\S+) for (?P<name>NCCL_\w+|\w+), using default", condition=True),
    rule("env-unknown-or-invalid", Says.NAMED, ("Unknown vLLM environment variable detected",), "vLLM does not know variable {name}", r"detected: (?P<name>\w+)", condition=True, unless=r"VLLM_(?:NO_USAGE|USE_)\w*\s*$NEVER"),
    rule("env-unknown-or-invalid", Says.STRONG, (": not found", ": command not found"), "a shell takes {name} for a command: $(NAME) names a variable that this container does not have",
         r"\b(?:ba|da|z|k)?sh(?:: line \d+|: \d+)*: (?P<name>[A-Z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+): (?:command )?not found", remedy="compare the names in the pod's command with the variables that the launcher sets (kubectl exec POD -- env)"),
    rule("env-unknown-or-invalid", Says.HINT, ("is unused. Setting it has no effect", "is deprecated; use"), "{name} is old or unused", r"(?:ENV:? |variable )(?P<name>\w+) is", condition=True),
    rule("env-unknown-or-invalid", Says.NAMED, ("Invalid NCCL_COMM_ID", "no algorithm/protocol available", "Invalid config blocking", "NCCL_ALGO is invalid", "Unrecognized element token", "Unrecognized NCCL_", "unrecognized NCCL_", "nvalid NCCL_", "Error: Invalid value for NCCL", "invalid option name", "UCX_NET_DEVICES: invalid", "unused environment variable"),
         "a setting of NCCL is invalid or cannot be met", unless=r"unused environment variables?: UCX_(?:HOME|DIR|ROOT)"),
    rule("env-unknown-or-invalid", Says.STRONG, ("unrecognized arguments:", "No such option", "invalid choice:", "Invalid VLLM_", "Invalid value for '", "Unknown backend type", "is not a valid", "Invalid attention backend"), "an option or variable is unknown here: {what}",
         r"(?P<what>unrecognized arguments: [^\n]*|No such option\S* \S+|invalid choice: [^\n]{1,80}|Invalid VLLM_\w+|Invalid value for '[^\n]{1,60}|Unknown backend type[^\n]*|\S+ is not a valid (?:backend|value|choice|option|NCCL|attention)[^\n]*|Invalid attention backend[^\n]*)"),
    rule("env-unknown-or-invalid", Says.STRONG, ("conflicting", "mutually exclusive", "cannot be used together", "contradict"), "two settings contradict each other", r"(?i)(?:VLLM_|NCCL_|--|GLOO_|RAY_|UCX_|FI_|environment).*(?:conflicting|mutually exclusive|cannot be used together|contradict)|(?:conflicting|contradict).*(?:VLLM_|NCCL_|GLOO_|environment var)"),
)
