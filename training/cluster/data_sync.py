"""The command `data-sync`: submit the Job that copies a bucket to the datasets, follow it, and mirror its exit status."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError
from infra.kube.stack_connection import connect
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from platform_charts.jobs.data_sync import CONTAINER, DataSyncRequest, render_data_sync
from training.cluster import platform_job
from training.cluster.context import read_target
from training.cluster.platform_job import Followed, is_over
from training.cluster.registry import check_image
from training.errors import ExitStatus
from training.options.services import DataSyncOptions

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_POLL_SECONDS = 1.0
_DELETION_SECONDS = 120.0


def data_sync(arguments: DataSyncOptions) -> ExitStatus:
    """Copy, or follow the copy that is under way."""
    request = DataSyncRequest(
        source=arguments.source or "",
        destination=arguments.destination or "",
        workers=arguments.workers,
        deletes=arguments.delete,
        accepts_unverified=arguments.accept_unverified,
    )
    target = read_target(arguments.env, file=arguments.outputs, environment=os.environ)
    job = render_data_sync(request, target)
    api = connect(target.outputs, kubeconfig=arguments.kubeconfig, environment=os.environ)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    unchecked = check_image(container["image"])
    if unchecked:
        print(f"warning: the image was not checked in the registry: {unchecked}", file=sys.stderr)
    made = submit(api, job)
    metadata = made["metadata"]
    print(
        f"copying {request.source} to {request.destination}: job {metadata['name']} in {metadata['namespace']}",
        flush=True,
    )
    if arguments.detach:
        print("  follow it: the same command again")
        return ExitStatus.DONE
    try:
        return follow(api, made)
    except KeyboardInterrupt:
        print(
            f"the copy goes on\n  follow it: the same command again\n"
            f"  stop it:   kubectl -n {metadata['namespace']} delete job {metadata['name']}",
            file=sys.stderr,
        )
        return ExitStatus.INTERRUPTED


def submit(api: KubernetesApi, job: Manifest) -> Manifest:
    """Create the Job, in place of one that is over; or return the running one, if it makes the same copy.

    Raises:
        RefusedError: another copy to the same destination is under way, or the cluster refuses the Job.
    """
    found = api.read(job)
    if found is not None and is_over(found):
        api.delete(found, propagation="Foreground")
        _await_deletion(api, found)
        found = None
    if found is None:
        try:
            return api.create(job)
        except ApiError as error:
            found = api.read(job) if error.code == HTTPStatus.CONFLICT else None
            if found is None:
                raise
    if _arguments(found) != _arguments(job):
        name, namespace = found["metadata"]["name"], found["metadata"]["namespace"]
        raise RefusedError(
            f"job {name} in namespace {namespace} writes this destination: {' '.join(_arguments(found))}",
            remedy=f"wait for it, or stop it: kubectl -n {namespace} delete job {name}",
        )
    return found


def follow(api: KubernetesApi, job: Manifest) -> ExitStatus:
    """Print the Job's log, and why it waits, until it is over; returns the exit status of the program.

    Raises:
        ApiError: the API server denies reading the Job.
        RefusedError: the Job was deleted.
    """
    followed = Followed(
        container=CONTAINER,
        subject="the copy",
        remedy="run the command again: it continues the copy",
        say=partial(print, flush=True),
    )
    status = platform_job.follow(api, job, followed)
    if status is ExitStatus.DONE:
        print("copied and verified")
    return status


def _arguments(job: Manifest) -> list[str]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    found: list[str] = container["args"]
    return found


def _await_deletion(api: KubernetesApi, job: Manifest) -> None:
    deadline = time.monotonic() + _DELETION_SECONDS
    while (found := api.read(job)) is not None and found["metadata"]["uid"] == job["metadata"]["uid"]:
        if time.monotonic() > deadline:
            raise RefusedError(
                f"the finished job {job['metadata']['name']} is not gone after {_DELETION_SECONDS:.0f} s"
            )
        time.sleep(_POLL_SECONDS)
