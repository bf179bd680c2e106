#!/usr/bin/env python3
"""A hook of `ncdiag oncall`: opens or updates a PagerDuty incident with the record (Events API v2).

Reads the JSON on standard input. PAGERDUTY_ROUTING_KEY_FILE names the file with the integration key; PAGERDUTY_URL may
name another place, for a test. Standard library only.
"""

import json
import os
import sys
import urllib.request

URL = "https://events.pagerduty.com/v2/enqueue"
SEVERITY = {
    "clear": "info",
    "repaired": "info",
    "incomplete": "warning",
    "to-do": "error",
    "to-prove": "warning",
    "failed": "error",
}


def event(result: dict, key: str) -> dict:
    """What PagerDuty takes; the fingerprint makes a repeated alert the same incident."""
    record, alert = result["record"], result["alert"]
    todo = [step["text"] for step in record["steps"] if step["kind"] == "remedy"]
    return {
        "routing_key": key,
        "event_action": "trigger",
        "dedup_key": "ncdiag-" + alert["fingerprint"],
        "payload": {
            "summary": f"{alert['alert']}: {record['title']} ({record['result']})"[:1024],
            "source": alert["labels"].get("instance", "ncdiag"),
            "severity": SEVERITY.get(record["result"], "error"),
            "custom_details": {
                "outcomes": {f"{step['playbook']}/{step['id']}": step["outcome"] for step in record["steps"]},
                "remedies": todo,
                "ended": record["ended"],
                "run": result["run"],
            },
        },
    }


def main() -> None:
    with open(os.environ["PAGERDUTY_ROUTING_KEY_FILE"], encoding="ascii") as file:
        key = file.read().strip()
    body = json.dumps(event(json.load(sys.stdin), key)).encode()
    request = urllib.request.Request(os.environ.get("PAGERDUTY_URL", URL), body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=10).close()


if __name__ == "__main__":
    main()
