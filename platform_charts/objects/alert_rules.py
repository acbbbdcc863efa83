"""Prometheus rules of the platform, from the file that `python -m observability.alerts` writes, with values of the stack's settings.

The chart's own rules cover Kubernetes. docs/RUNBOOKS.md has a section for each alert.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path

import yaml

from infra.spec.catalog import load_catalog
from infra.spec.cluster_names import MONITORING_NAMESPACE
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.settings_rules import settings_rules

RULES = Path(__file__).with_suffix(".yaml")
"""All groups, whatever an environment has."""

GPU_GROUPS = ("gpu-hardware", "gpu-nodes", "gpu-metrics", "gpu-cost")
"""Groups that select metrics of GPU nodes."""

LOG_GROUPS = ("logs",)
"""Groups that select metrics of Fluent Bit."""

BUDGET_GROUPS = ("team-budgets",)
"""Groups that compare with the budgets of teams."""


def alert_rules(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """One PrometheusRule with the groups that concern the environment.

    Its labels do not matter: Prometheus selects the rules of all namespaces (`platform_charts.charts.kube_prometheus_stack`).
    """
    absent = (
        *(() if settings.gpu_groups else GPU_GROUPS),
        *(() if settings.logs.destination != "none" else LOG_GROUPS),
        *(() if any(team.daily_usd is not None for team in settings.teams) else BUDGET_GROUPS),
    )
    given = settings_rules(settings, catalog=load_catalog())
    groups = [
        {**group, "rules": [*given.get(group["name"], ()), *deepcopy(group["rules"])]}
        for group in _groups()
        if group["name"] not in absent
    ]
    return (
        api_object(
            "monitoring.coreos.com/v1",
            "PrometheusRule",
            "platform",
            namespace=MONITORING_NAMESPACE,
            labels=labels("monitoring", version=release.platform),
            spec={"groups": groups},
        ),
    )


@cache
def _groups() -> tuple[Manifest, ...]:
    return tuple(yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"])
