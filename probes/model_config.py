"""Facts: the model's config.json as each node has it.

Its numbers (heads, KV heads, widths, experts) say which tensor-parallel sizes are possible at all; vLLM finds out only after every
rank has started. Judged by `ncdiag.sizing.fits` together with the plan and the GPUs that are there.

Source: config.json of the model folder (Hugging Face transformers).
"""

from __future__ import annotations

import json
from typing import Any, Dict, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Probe

LIMIT = 1 << 20
"""Bytes; the largest public ones have some ten thousand."""


class Facts(TypedDict):
    path: Optional[str]
    """None: no model folder was named."""
    config: Optional[Dict[str, Any]]
    error: Optional[str]
    """Why there is no config; None where there is one or no folder was named."""


def collect(host: Host) -> Facts:
    if host.model is None or not host.model.startswith("/"):
        return {"path": None, "config": None, "error": None}
    path = host.model.rstrip("/") + "/config.json"
    try:
        config = json.loads(host.read(path, LIMIT))
    except HostError as error:
        return {"path": path, "config": None, "error": error.reason}
    except (ValueError, RecursionError) as error:
        return {"path": path, "config": None, "error": "not JSON: %s" % error}
    if not isinstance(config, dict):
        return {"path": path, "config": None, "error": "holds a %s, not an object" % type(config).__name__}
    return {"path": path, "config": config, "error": None}


PROBE = Probe("model-config", "facts: the model's config.json", None, collect)
