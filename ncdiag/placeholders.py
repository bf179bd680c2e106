"""Words in capitals that stand in a remedy for what is to be typed there, filled in where it is known. Standard library only, Python 3.8."""

from __future__ import annotations

import re
from typing import Any, Mapping


def filled(remedy: str, known: Mapping[str, Any]) -> str:
    """`known`: such a word -> its value, None or empty where it is not known; then the word stays.

    >>> filled("see nc -vz HOST PORT", {"HOST": "192.0.2.7", "PORT": None})
    'see nc -vz 192.0.2.7 PORT'
    """
    for word, value in known.items():
        if value not in (None, ""):
            remedy = re.sub(r"(?<![\w-])%s(?![\w-])" % word, str(value).replace("\\", r"\\"), remedy)
    return remedy
