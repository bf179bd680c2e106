"""What Alertmanager posts (webhook version 4), and which playbook answers it. Pure."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ncdiag.oncall.settings import Rule, Settings

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
_Value = Annotated[str, StringConstraints(max_length=2048)]


class Alert(BaseModel):
    """One alert. Fields that are not needed are left out."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    status: Literal["firing", "resolved"]
    labels: Annotated[dict[_Name, _Value], Field(max_length=64)]
    startsAt: Annotated[str, StringConstraints(max_length=64)]
    fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]

    @property
    def name(self) -> str:
        """The label alertname, empty where there is none."""
        return self.labels.get("alertname", "")

    def age_s(self, now: datetime) -> float | None:
        """Seconds since it began; None when `startsAt` is no time with a zone."""
        try:
            began = datetime.fromisoformat(_six_digits(self.startsAt))
        except ValueError:
            return None
        return (now - began).total_seconds() if began.tzinfo else None


class Webhook(BaseModel):
    """One request body."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    version: Literal["4"]
    alerts: Annotated[list[Alert], Field(max_length=200)]


def rule_for(alert: Alert, settings: Settings) -> tuple[str, str] | None:
    """`(playbook, nodes)`, None for an alert that is to be ignored."""
    rule = next((rule for rule in settings.rules if _fits(rule, alert)), None)
    if rule is not None:
        return rule.playbook, rule.nodes or settings.nodes
    return None if settings.otherwise == "ignore" else (settings.otherwise, settings.nodes)


def refusal(alert: Alert, settings: Settings) -> str | None:
    """Why this alert is not to be run whatever its labels say."""
    age = alert.age_s(datetime.now(timezone.utc))
    if age is None:
        return f"startsAt {alert.startsAt!r} is no time"
    if age > settings.max_age_s:
        return f"it began {age:.0f} s ago, longer than max_age_s = {settings.max_age_s:.0f}; a replay?"
    return "it begins in the future" if age < -300 else None


def _fits(rule: Rule, alert: Alert) -> bool:
    return all(alert.labels.get(name) == value for name, value in rule.labels.items())


def _six_digits(text: str) -> str:
    """Go's RFC 3339 time as Python 3.10 reads it: +00:00 for Z, at most microseconds."""
    text = text.replace("Z", "+00:00")
    head, dot, rest = text.partition(".")
    if not dot:
        return text
    zone = max(rest.find("+"), rest.find("-"))
    digits, offset = (rest[:zone], rest[zone:]) if zone >= 0 else (rest, "")
    return f"{head}.{digits[:6]:0<6}{offset}"
