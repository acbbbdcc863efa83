"""The types of rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

RUNBOOKS = "docs/RUNBOOKS.md"
"""The document with a section for each alert."""


class Severity(StrEnum):
    """How urgent an alert is. The values are those of kube-prometheus-stack's own rules, by which Alertmanager routes.

    Attributes:
        PAGE: someone acts now: jobs fail, or expensive nodes do nothing.
        TICKET: someone acts within a working day.
        INFO: shown, but sent to no one.
    """

    PAGE = "critical"
    TICKET = "warning"
    INFO = "info"


@dataclass(frozen=True, kw_only=True)
class Alert:
    """An alert rule.

    Attributes:
        name: CamelCase, the subject first.
        expression: PromQL; each series of its result is an alert.
        wait: Prometheus's `for`: how long the expression must hold.
        summary: one sentence, with the value and the subject as Prometheus templates.
        action: the first thing to do; the runbook has the rest.
        is_state: the value is always the same, so the summary names the state instead.
    """

    name: str
    expression: str
    wait: str
    severity: Severity
    summary: str
    action: str
    is_state: bool = False

    @property
    def anchor(self) -> str:
        """Anchor of its section in the runbooks."""
        return self.name.lower()

    def manifest(self) -> Mapping[str, object]:
        """The rule as Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.wait,
            "labels": {"severity": self.severity.value},
            "annotations": {
                "summary": self.summary,
                "description": self.action,
                "runbook": f"{RUNBOOKS}#{self.anchor}",
            },
        }


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A recording rule, for an expression that several rules use or that needs a history.

    Attributes:
        name: `level:metric:operation` (Prometheus, "Recording rules").
        expression: PromQL.
    """

    name: str
    expression: str

    def manifest(self) -> Mapping[str, object]:
        """The rule as Prometheus reads it."""
        return {"record": self.name, "expr": self.expression}


Rule = Alert | Recording


@dataclass(frozen=True, kw_only=True)
class Given:
    """A series that each stack records from its settings (`platform_charts.objects.settings_rules`), before the rules that use it.

    Attributes:
        name: as a recording rule's.
        labels: of the series.
    """

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rules that Prometheus evaluates in order, so that a rule may use what an earlier one has recorded.

    Attributes:
        given: series of the stack's settings that the rules use.
    """

    name: str
    given: Sequence[Given] = field(default=())
    recordings: Sequence[Recording] = field(default=())
    alerts: Sequence[Alert]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, recordings first."""
        return (*self.recordings, *self.alerts)

    def manifest(self) -> Mapping[str, object]:
        """The group as Prometheus reads it."""
        return {"name": self.name, "rules": [rule.manifest() for rule in self.rules]}
