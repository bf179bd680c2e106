"""What an agent says: one JSON object a line on standard output, each behind `MARK`."""

from __future__ import annotations

import json
import os
from typing import Any, Dict

MARK = "ncdiag-bandwidth "


def say(message: Dict[str, Any]) -> None:
    data = (MARK + json.dumps(message) + "\n").encode()
    while data:
        data = data[os.write(1, data) :]
