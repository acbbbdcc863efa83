"""The suite's job: what it asks for, and what it renders to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlsplit

from infra.spec.cluster_names import MONITORING_NAMESPACE, RUNS_PATH
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from infra.spec.outputs import GpuGroupOutput
from infra.spec.section import nearest
from platform_charts.jobs.capacity_end import lasting_capacity
from platform_charts.jobs.placement import place_job
from platform_charts.jobs.pods import SETTINGS_FILE, SETTINGS_FOLDER
from platform_charts.jobs.price import usd_per_hour
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import JobRequest, timed_name
from training.cluster.conformance.judges.shape import JobShape
from training.cluster.context import ClusterContext
from training.cluster.job_settings import for_cluster
from training.config.load import load_settings, render
from training.errors import SettingsError

_PROGRAM = ("python", "-m", "training.conformance", "job")
_PODS = 2
"""Of the job; one on a group that cannot have two nodes."""

_BATCH = 64
"""Samples of a step; a multiple of the ranks of two nodes."""

PROMETHEUS = f"kube-prometheus-stack-prometheus.{MONITORING_NAMESPACE}.svc:9090"
"""A server that answers on every stack, and that no pod of a team may reach."""

_EPOCHS = 6
_SAVED_STEPS = 20
_DEADLINE_HOURS = 1.0
_KEEP_DAYS = 1.0


@dataclass(frozen=True, kw_only=True)
class SuiteJob:
    """The job as it is submitted.

    Attributes:
        name: of the job and of its run.
        manifests: its objects.
        shape: its pods.
        group: the node group; None for the head nodes.
        dollars_per_hour: price of its GPUs; None without GPUs, or if it is not known.
    """

    name: str
    manifests: tuple[Manifest, ...]
    shape: JobShape
    group: GpuGroupOutput | None
    dollars_per_hour: float | None

    @property
    def ray_job(self) -> Manifest:
        """The RayJob among the objects."""
        (found,) = [one for one in self.manifests if one["kind"] == "RayJob"]
        return found


def suite_job(context: ClusterContext, *, group: GpuGroupOutput | None, now: datetime) -> SuiteJob:
    """The job on two nodes of a group, or its only one, with all of their GPUs, or on two CPU pods of the head nodes.

    Raises:
        PlatformError: the stack cannot run it.
    """
    gpus = 0 if group is None else group.gpus_per_node
    pods = _PODS if group is None else min(_PODS, group.max_nodes)
    workers = pods * max(1, gpus)
    request = _request(context, name=timed_name("conformance", now=now), workers=workers, group=group, now=now)
    target = lasting_capacity(request, context.target, now=now)
    placement = place_job(request, target)
    sizes = {"--nodes": placement.pods, "--gpus": placement.gpus, "--cpus": placement.share.cpus}
    counts = (word for name, count in sizes.items() for word in (name, str(count)))
    request = replace(request, command=(*(request.command or ()), *counts))
    return SuiteJob(
        name=request.name,
        manifests=render_job(request, target),
        shape=JobShape(
            pods=placement.pods,
            gpus=placement.gpus,
            efa=placement.efa,
            instance_type="" if group is None else group.instance_type,
            gpus_per_node=gpus,
        ),
        group=group,
        dollars_per_hour=usd_per_hour(placement, target),
    )


def chosen_group(context: ClusterContext, *, name: str | None, use_gpu: bool | None) -> GpuGroupOutput | None:
    """The group with that name, else the best that the job can have; None for CPUs.

    The best has two nodes rather than one, is not spot, and is the cheapest. Groups with Capacity Blocks, which are paid for and
    end, have to be named.

    Raises:
        SettingsError: there is no such group, or it was named for a job without GPUs.
        RefusedError: the job cannot run on it, or on any.
    """
    if use_gpu is False:
        if name is not None:
            raise SettingsError(
                f"group={name} has GPUs, and the job is to have none",
                remedy="leave out GROUP=… (--group), or GPU=0 (--no-use-gpu)",
            )
        return None
    groups = context.target.outputs.gpu_groups
    if name is not None:
        return _named_group(groups, name, env=context.env)
    fitting = [one for one in groups if _is_whole(one) and one.drain_before is None]
    if not fitting and use_gpu:
        raise RefusedError(
            f"stack {context.env} has no GPU group for the job: whole GPUs, not time slices or parts, and no Capacity Block",
            remedy="name a group with a Capacity Block with GROUP=…, or leave GPU=1 out for a job on CPUs",
        )

    def rank(group: GpuGroupOutput) -> tuple[bool, bool, float, str]:
        usd = context.target.catalog.find_instance(group.instance_type).usd_per_hour
        return group.max_nodes < _PODS, group.capacity_type == "SPOT", math.inf if usd is None else usd, group.name

    return min(fitting, key=rank, default=None)


def _named_group(groups: Sequence[GpuGroupOutput], name: str, *, env: str) -> GpuGroupOutput:
    found = next((one for one in groups if one.name == name), None)
    if found is None:
        known = [one.name for one in groups]
        raise SettingsError(
            f"group={name}: stack {env} has no such GPU group",
            remedy=nearest(name, known) if known else "it has none; leave out GROUP=… (--group) for a job on CPUs",
        )
    if not _is_whole(found):
        usable = ", ".join(one.name for one in groups if _is_whole(one)) or "none"
        raise RefusedError(
            f"group={name}: its GPUs are shared, and the suite's job needs whole ones; groups that have them: {usable}",
            remedy="name one of them, or GPU=0 (--no-use-gpu) for CPUs",
        )
    return found


def _is_whole(group: GpuGroupOutput) -> bool:
    """Whether the group's GPUs are not shared."""
    return group.devices_per_gpu == 1


def _request(
    context: ClusterContext, *, name: str, workers: int, group: GpuGroupOutput | None, now: datetime
) -> JobRequest:
    outputs, team = context.target.outputs, context.team
    others = [one.namespace for one in outputs.teams if one.namespace != team.namespace]
    folders = ["--own", team.namespace, *(["--foreign", others[0]] if others else [])]
    return JobRequest(
        name=name,
        kind="conformance",
        team=team.name,
        settings_yaml=_settings(context, name=name, workers=workers, gpu=group is not None, now=now),
        workers=workers,
        gpus_per_worker=0 if group is None else 1,
        cpus_per_worker=1,
        group=None if group is None else group.name,
        deadline_hours=_DEADLINE_HOURS,
        keep_days=_KEEP_DAYS,
        command=(
            *(*_PROGRAM, "--config", f"{SETTINGS_FOLDER}/{SETTINGS_FILE}"),
            *("--bucket", outputs.storage.checkpoint_bucket, *folders),
            *("--allowed", _server(outputs.mlflow_uri), "--denied", PROMETHEUS),
        ),
    )


def _server(uri: str) -> str:
    """Host and port of a URI."""
    parts = urlsplit(uri)
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def _settings(context: ClusterContext, *, name: str, workers: int, gpu: bool, now: datetime) -> str:
    """Settings of a short run on the digits, of which rank 1, or the only one, is killed once there is a checkpoint."""
    batch = max(_BATCH, 2 * workers)
    written = load_settings(
        ["digits"],
        overrides=[
            f"run.name={name}",
            "data.dataset=training.conformance.victim:digits",
            f"data.options={{run: {RUNS_PATH}/{name}, rank: {min(1, workers - 1)}}}",
            f"loop.epochs={_EPOCHS}",
            f"loop.global_batch={batch - batch % workers}",
            f"checkpoint.every_steps={_SAVED_STEPS}",
            f"scale.workers={workers}",
            f"scale.gpu={str(gpu).lower()}",
            "tracking.experiment=conformance",
            "tracking.registered_model=conformance",
        ],
        environment={},
    )
    return render(for_cluster(written, context.target.outputs, team=context.team, now=now))
