"""Brings a record to where people look: a URL, a program, or both."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from ncdiag.oncall.settings import Post, Settings, SettingsError, read_token

TRIES = 3
POST_S = 10.0
HOOK_S = 60.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry token and record to a place that nobody named."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        return None


def deliver(result: dict[str, Any], settings: Settings) -> str:
    """Posts and runs what the settings name; says how it went, in one line. Never raises."""
    body = json.dumps(result).encode()
    ways = []
    if settings.post is not None:
        ways.append(_post(body, settings.post))
    if settings.hook is not None:
        ways.append(_hook(body, settings.hook))
    return "; ".join(ways) or "kept here only"


def _post(body: bytes, post: Post) -> str:
    headers = {"Content-Type": "application/json", "User-Agent": "ncdiag"}
    try:
        if post.token_file is not None:
            headers["Authorization"] = f"Bearer {read_token(post.token_file)}"
    except SettingsError as error:
        return f"not posted: {error}"
    opener = urllib.request.build_opener(_NoRedirect)
    problem = ""
    for attempt in range(TRIES):
        time.sleep(0.5 * attempt)
        try:
            with opener.open(urllib.request.Request(post.url, body, headers), timeout=POST_S) as answer:
                return f"posted ({answer.status})"
        except (OSError, HTTPException, ValueError) as error:
            problem = str(error)
            if isinstance(error, urllib.error.HTTPError):
                error.close()
                if error.code < 500:
                    break
    return f"not posted: {problem}"


def _hook(body: bytes, command: list[str]) -> str:
    try:
        done = subprocess.run(command, input=body, capture_output=True, timeout=HOOK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"hook failed: {error}"
    return f"hook ended with {done.returncode}"
