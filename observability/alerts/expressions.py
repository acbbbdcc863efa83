"""Pieces of PromQL that several rules use."""

from __future__ import annotations

RUN = "namespace, training_job, run"
"""Labels of a run. The exporter's own labels name the process, which a restart changes."""

NO_SEARCH = "unless on (namespace, training_job) ray_rtp_search_planned_trials"
"""Leaves out the trials of searches: one that waits for the search's decision takes no steps, and is not at fault."""

SEARCH = "namespace, training_job, search"

RUN_TEXT = "run {{ $labels.run }} of job {{ $labels.namespace }}/{{ $labels.training_job }}"
SEARCH_TEXT = "search {{ $labels.search }} of job {{ $labels.namespace }}/{{ $labels.training_job }}"

COUNT = '{{ $value | printf "%.0f" }}'
"""A number of things: `increase` extrapolates to fractions."""

GPU_NODES = 'kube_node_status_capacity{resource="nvidia_com_gpu"}'
"""kube-state-metrics replaces characters of a resource's name that a metric's name may not have."""


def of_run(metric: str) -> str:
    """A gauge of a run. After a restart the series of the former process stays for some seconds, and the greater value is the newer."""
    return f"max by ({RUN}) ({metric})"


def growth(metric: str, *, by: str, window: str) -> str:
    """How much a counter that seldom grows has grown; `increase` would miss its first increment, with which the series begins.

    A series without a sample at the start of the window counts from 0, also if Prometheus missed its scrapes then. One that restarts at a
    lower value has not grown.
    """
    now = f"sum by ({by}) ({metric})"
    return f"({now} - (sum by ({by}) ({metric} offset {window}) or 0 * {now}))"
