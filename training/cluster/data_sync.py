"""The command `data-sync`: submit the Job that copies a bucket to the datasets, follow it, and mirror its exit status."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError, ConnectionLostError
from infra.kube.stack_connection import connect
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from platform_charts.jobs.data_sync import CONTAINER, DataSyncRequest, render_data_sync
from training.cluster.context import read_target
from training.cluster.driver_log import DriverLog
from training.cluster.objects import EVENT, POD, conditions, has_condition
from training.cluster.registry import check_image
from training.cluster.waiting import waiting_reason
from training.errors import ExitStatus
from training.options import DataSyncOptions

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_POLL_SECONDS = 1.0
_LONGEST_WAIT = 30.0
_LAST_LINES_SECONDS = 10.0
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
    if found is not None and _is_over(found):
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


@dataclass(frozen=True)
class PodsOfJob:
    """The pods of one Job, as a source of its log.

    Attributes:
        api: the cluster.
        namespace: of the Job.
        name: of the Job.
        uid: of the Job; pods of an earlier Job of the name do not count.
    """

    api: KubernetesApi
    namespace: str
    name: str
    uid: str

    def all(self) -> list[Manifest]:
        """The pods, the oldest first."""
        labels = f"batch.kubernetes.io/controller-uid={self.uid}"
        pods = self.api.items(*POD, namespace=self.namespace, labels=labels)
        return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def submitter(self) -> Manifest | None:
        """The newest pod."""
        return next(reversed(self.all()), None)


def follow(api: KubernetesApi, job: Manifest) -> ExitStatus:
    """Print the Job's log, and why it waits, until it is over; returns the exit status of the program.

    Raises:
        ApiError: the API server denies reading the Job.
        RefusedError: the Job was deleted.
    """
    metadata = job["metadata"]
    source = PodsOfJob(api, metadata["namespace"], metadata["name"], metadata["uid"])
    log = DriverLog(api, source, container=CONTAINER)
    log.start()
    reason, wait = "", _POLL_SECONDS
    while True:
        try:
            now = api.read(job)
            pods = source.all()
            said = _reason(api, pods)
        except (ConnectionLostError, ApiError) as error:
            if isinstance(error, ApiError) and not error.is_transient:
                raise
            wait = min(2 * wait, _LONGEST_WAIT)
            said = f"connection lost, the copy goes on; retrying: {error.args[0]}"
            now = job
        else:
            wait = _POLL_SECONDS
        _print(log.take())
        if said and said != reason:
            print(said, flush=True)
        reason = said
        if now is None or now["metadata"]["uid"] != metadata["uid"]:
            raise RefusedError(
                f"job {metadata['name']} was deleted", remedy="run the command again: it continues the copy"
            )
        if _is_over(now):
            _print(log.finish(seconds=_LAST_LINES_SECONDS))
            return _status(now, pods)
        time.sleep(wait)


def _reason(api: KubernetesApi, pods: list[Manifest]) -> str:
    """Why no pod runs; empty if one does, or is over."""
    if any((pod.get("status") or {}).get("phase", "Pending") != "Pending" for pod in pods[-1:]):
        return ""
    names = {pod["metadata"]["name"] for pod in pods}
    events = [
        event
        for event in (api.items(*EVENT, namespace=pods[-1]["metadata"]["namespace"]) if pods else ())
        if event["involvedObject"].get("name") in names
    ]
    return f"waiting: {waiting_reason(pods[-1:], events)}" if pods else ""


def _status(job: Manifest, pods: list[Manifest]) -> ExitStatus:
    """The exit status of the program that the Job ended with."""
    if has_condition(job, "Complete"):
        print("copied and verified")
        return ExitStatus.DONE
    (failed,) = [one for one in conditions(job) if one["type"] == "Failed"]
    print(f"job {job['metadata']['name']} failed: {failed.get('message', failed.get('reason', ''))}", file=sys.stderr)
    codes = [
        state["exitCode"]
        for pod in pods
        for one in (pod.get("status") or {}).get("containerStatuses") or ()
        if (state := (one.get("state") or {}).get("terminated"))
    ]
    known = {int(status) for status in ExitStatus} - {int(ExitStatus.DONE)}
    return ExitStatus(codes[-1]) if codes and codes[-1] in known else ExitStatus.FAILED


def _is_over(job: Manifest) -> bool:
    return has_condition(job, "Complete") or has_condition(job, "Failed")


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


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)
