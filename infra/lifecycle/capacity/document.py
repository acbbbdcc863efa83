"""Findings and calendar as JSON, for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from infra.lifecycle.capacity.calendar import Calendar
from infra.lifecycle.capacity.finder import Findings
from infra.lifecycle.capacity.placing import Fit
from infra.lifecycle.capacity.report import Way
from infra.lifecycle.capacity.windows import Window


def findings_document(findings: Findings, found: tuple[Way, ...], *, environment: str) -> dict[str, Any]:
    """The offers, best first, and the kinds of capacity without one."""
    need = findings.need
    return {
        "environment": environment,
        "need": {
            "group": need.group.name,
            "instance_type": need.instance.name,
            "nodes": need.nodes,
            "hours": need.hours,
            "from": _time(need.starts),
        },
        "offers": [_way(one) for one in found],
        "absent": [{"kind": one.kind, "region": one.region, "why": one.why} for one in findings.absent],
    }


def _way(way: Way) -> dict[str, Any]:
    one, change = way.judged, way.change
    return {
        "kind": one.offer.kind,
        "id": getattr(one.offer, "id", None),
        "region": one.offer.region,
        "zones": list(one.zones),
        "from": _time(one.starts),
        "nodes_until": _time(one.ends),
        "certainty": str(one.certainty),
        "usd": one.cost.usd,
        "usd_per_gpu_hour": one.cost.per_gpu_hour,
        "suffices": not one.shortfalls,
        "shortfalls": list(one.shortfalls),
        "notes": list(one.notes),
        "command": way.command or None,
        "settings": None
        if change is None
        else {
            "group_yaml": "\n".join(change.group) or None,
            "team_gpus_yaml": dict(change.quotas),
            "refused": change.refusal or None,
        },
    }


def calendar_document(calendar: Calendar, *, environment: str) -> dict[str, Any]:
    """The windows with their jobs, the gaps, and what is wrong."""
    return {
        "environment": environment,
        "now": _time(calendar.now),
        "windows": [_window(calendar, one) for one in calendar.windows],
        "gaps": [
            {"instance_type": one.instance_type, "from": _time(one.starts), "until": _time(one.ends)}
            for one in calendar.gaps
        ],
        "jobs_known": calendar.jobs_unknown == "",
        "jobs_unknown_because": calendar.jobs_unknown or None,
    }


def _window(calendar: Calendar, window: Window) -> dict[str, Any]:
    return {
        "id": window.id,
        "kind": window.kind,
        "group": window.group or None,
        "instance_type": window.instance_type,
        "zone": window.zone,
        "nodes": window.nodes,
        "gpus": window.gpus,
        "state": window.state,
        "from": _time(window.starts),
        "ends": _time(window.ends),
        "nodes_until": _time(window.nodes_until),
        "problems": list(window.problems),
        "jobs": [_job(one) for one in calendar.jobs_in(window)],
    }


def _job(fit: Fit) -> dict[str, Any]:
    return {
        "team": fit.job.team,
        "name": fit.job.name,
        "state": fit.job.state,
        "nodes": fit.job.nodes,
        "gpus": fit.job.gpus,
        "from": _time(fit.starts),
        "latest_end": _time(fit.ends),
        "fits": fit.fits,
        "problem": fit.problem or None,
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
