"""Judges what Prometheus has of the run, and of the release's rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from training.cluster.conformance.check import Finding, judged


@dataclass(frozen=True, kw_only=True)
class RuleGroup:
    """A group of rules as Prometheus has it.

    Attributes:
        name: of the group.
        rules: names of its rules.
        errors: what the last evaluation of a rule said, by its name; only rules with an error.
    """

    name: str
    rules: frozenset[str]
    errors: Mapping[str, str] = field(default_factory=dict)


def rules(loaded: Sequence[RuleGroup], *, expected: Mapping[str, Collection[str]]) -> Finding:
    """Every group of the release is loaded with all of its rules, and none of them fails.

    Args:
        loaded: what Prometheus evaluates, also groups that are not the release's.
        expected: names of rules by the name of their group.
    """
    ours = {one.name: one for one in loaded if one.name in expected}
    wrong = []
    for name, wanted in expected.items():
        group = ours.get(name)
        if group is None:
            wrong.append(f"group {name} is not loaded")
            continue
        if missing := sorted(set(wanted) - group.rules):
            wrong.append(f"group {name} lacks {', '.join(missing)}")
        wrong += [f"{name}: {rule}: {error}" for rule, error in group.errors.items()]
    count = sum(map(len, expected.values()))
    summary = f"{len(expected)} groups with {count} rules"
    return judged(holds=not wrong, expected=f"{summary}, no error", found="; ".join(wrong) or summary)


@dataclass(frozen=True, kw_only=True)
class AlertFacts:
    """How alerts leave Prometheus.

    Attributes:
        alertmanagers: number of Alertmanagers that it has found.
        is_firing: whether the alert fires that always does.
        sent: notifications that were taken lately, or, by a Prometheus before 3, sent; None if it has no count of them.
        failed: those that Alertmanager has not taken.
    """

    alertmanagers: int
    is_firing: bool
    sent: float | None
    failed: float


def alerts(facts: AlertFacts, *, name: str) -> Finding:
    """Prometheus has an Alertmanager, and sends it the alert that always fires.

    Args:
        facts: how alerts leave Prometheus.
        name: of that alert.
    """
    wrong = []
    if not facts.alertmanagers:
        wrong.append("Prometheus has no Alertmanager")
    if not facts.is_firing:
        wrong.append(f"alert {name} does not fire")
    if not facts.sent and not facts.failed:
        wrong.append("Prometheus has sent no notification lately")
    elif facts.failed >= (facts.sent or 0):
        wrong.append("Alertmanager takes no notification")
    summary = f"{name} is firing and sent to Alertmanager"
    return judged(holds=not wrong, expected=summary, found="; ".join(wrong) or summary)


def metrics(steps: Mapping[str, float], *, run: str) -> Finding:
    """Prometheus has seen steps of the run.

    Args:
        steps: newest step by job.
        run: the job.
    """
    newest = steps.get(run)
    return judged(
        holds=newest is not None and newest >= 1,
        expected=f"ray_rtp_train_step of job {run}",
        found="no such series" if newest is None else f"step {newest:.0f}",
    )
