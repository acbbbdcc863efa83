"""Waits for the nodes of an existing Ray cluster: a job's driver may start while a lost node is being replaced."""

from __future__ import annotations

import time
from collections.abc import Callable

import ray

from training.config.schema import ScaleSettings
from training.errors import PreflightError
from training.preflight import Machine
from tune.resources import Plan, plan_trials
from tune.settings import SearchSettings

_POLL_SECONDS = 1.0


def await_plan(
    scale: ScaleSettings, search: SearchSettings, *, is_stopped: Callable[[], bool], say: Callable[[str], None]
) -> Plan | None:
    """How the trials share the cluster, as soon as its nodes can run as many as `search.concurrency` says, or one without it.

    Args:
        scale: of each trial.
        search: the `search` section.
        is_stopped: whether somebody has asked the search to stop.
        say: is told once what is missing.

    Returns:
        The plan; None if the search was asked to stop.

    Raises:
        PreflightError: the nodes are not there after `scale.start_timeout`.
        SettingsError: see `plan_trials`.
    """
    deadline, has_said = time.monotonic() + scale.start_timeout, False
    while not is_stopped():
        try:
            return plan_trials(scale, search, *_nodes())
        except PreflightError as missing:
            if time.monotonic() >= deadline:
                raise
            if not has_said:
                say(f"waiting for the cluster's nodes, {scale.start_timeout:g} s at most: {missing.args[0]}")
                has_said = True
        time.sleep(_POLL_SECONDS)
    return None


def _nodes() -> list[Machine]:
    """The nodes that are alive and have CPUs, unlike the head of a job, with what they offer in all."""
    offers = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    nodes = [Machine(cpus=int(offer.get("CPU", 0)), gpus=int(offer.get("GPU", 0))) for offer in offers]
    return [node for node in nodes if node.cpus] or [Machine(cpus=0, gpus=0)]
