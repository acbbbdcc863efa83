"""Limits how many workers an elastic job may have, while it is queued or runs; `platform_charts.images.job_sizer` keeps to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.spec.cluster_names import MOST_ANNOTATION, SESSION_PREFIX, SIZES_ANNOTATION
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import is_command_job, is_search
from training.cluster import job_manifest
from training.cluster.commands import job_state, kept_settings, loaded_again
from training.cluster.context import ClusterContext
from training.cluster.own_code import kept_code
from training.cluster.steps import named_job
from training.config.resize import check_size, nearest
from training.errors import ExitStatus, SettingsError

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi
    from training.options.runs import ResizeOptions


def resize(options: ResizeOptions) -> ExitStatus:
    """Let a job have at most so many workers.

    Raises:
        SettingsError: no such job; or it cannot have so many workers; names the nearest numbers that it can have.
        RefusedError: it is over, or its number of workers is fixed.
    """
    context, api, job = named_job(options)
    name, workers = job["metadata"]["name"], options.workers
    state = job_state(api, context, name)
    if state.is_over:
        raise RefusedError(
            f"job {name} is already {state.stage}",
            remedy=f"resume it with so many workers: {context.hint('resume', name)} SET=scale.workers={workers}",
        )
    _check(api, context, job, workers)
    pods = _pods(job, workers)
    limit(api, job, pods)
    print(f"job {name}: {_outcome(job, workers, pods)}; make jobs ENV={context.env} shows it")
    return ExitStatus.DONE


def limit(api: KubernetesApi, job: Manifest, pods: int) -> None:
    """Let an elastic job have at most so many worker pods, until it is resized or submitted again."""
    api.patch(job, {"metadata": {"annotations": {MOST_ANNOTATION: str(pods)}}})


def _check(api: KubernetesApi, context: ClusterContext, job: Manifest, workers: int) -> None:
    """Refuse a number that the run of the job cannot have; raises as `resize`."""
    name = job["metadata"]["name"]
    if is_command_job(job) or is_search(job) or name.startswith(SESSION_PREFIX):
        raise RefusedError(
            f"job {name} does not train one model, so its number of workers is fixed",
            remedy=f"stop it, and submit it with the number it needs: {context.hint('stop', name)}",
        )
    written = kept_settings(api, context, job)
    check_size(loaded_again(job, written, kept_code(api, job)), workers)


def _pods(job: Manifest, workers: int) -> int:
    """The worker pods of so many workers; raises as `resize`."""
    name, ranks = job["metadata"]["name"], job_manifest.ranks_of_pod(job)
    sizes = job["metadata"].get("annotations", {}).get(SIZES_ANNOTATION)
    if sizes is None:
        raise RefusedError(
            f"job {name} has a fixed number of workers: only one of its range is whole pods that its group has nodes for",
            remedy="submit it with a range that has several",
        )
    possible = [int(size) * ranks for size in sizes.split(",")]
    if workers not in possible:
        raise SettingsError(
            f"workers={workers}: a pod of job {name} has {ranks} of its workers, so it can have {', '.join(map(str, possible))}",
            remedy=f"use {nearest(possible, workers)}",
        )
    return workers // ranks


def _outcome(job: Manifest, workers: int, pods: int) -> str:
    """What the sizer makes of a limit."""
    having, most = job_manifest.worker_pods(job), f"{workers} worker{'s' * (workers != 1)}"
    if pods >= having:
        return f"grows to at most {most} when its queue has room"
    return f"returns {having - pods} of its {having} worker pods within a minute, commits its next step and continues with {most}"
