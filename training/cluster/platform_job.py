"""A plain Job of the platform, such as a copy or a backup: its log, why it waits, and the exit status of its program."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError, ConnectionLostError
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from training.cluster.driver_log import DriverLog
from training.cluster.objects import EVENT, POD, conditions, has_condition
from training.cluster.waiting import waiting_reason
from training.errors import ExitStatus

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_POLL_SECONDS = 1.0
_LONGEST_WAIT = 30.0
_LAST_LINES_SECONDS = 10.0


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


@dataclass(frozen=True, kw_only=True)
class Followed:
    """What to follow, and how to speak of it.

    Attributes:
        container: container of the Job's pods.
        subject: what the Job does, e.g. `the copy`.
        remedy: what to do if the Job is deleted.
        say: prints a line.
    """

    container: str
    subject: str
    remedy: str
    say: Callable[[str], None]


def follow(api: KubernetesApi, job: Manifest, followed: Followed) -> ExitStatus:
    """Print the Job's log, and why it waits, until it is over; returns the exit status of the program.

    Raises:
        ApiError: the API server denies reading the Job.
        RefusedError: the Job was deleted.
    """
    metadata = job["metadata"]
    source = PodsOfJob(api, metadata["namespace"], metadata["name"], metadata["uid"])
    log = DriverLog(api, source, container=followed.container)
    log.start()
    reason, wait = "", _POLL_SECONDS
    while True:
        try:
            now = api.read(job)
            pods = source.all()
            said = _reason(api, job, pods)
        except (ConnectionLostError, ApiError) as error:
            if isinstance(error, ApiError) and not error.is_transient:
                raise
            wait = min(2 * wait, _LONGEST_WAIT)
            said = f"connection lost, {followed.subject} goes on; retrying: {error.args[0]}"
            now = job
        else:
            wait = _POLL_SECONDS
        _say(followed, log.take())
        if said and said != reason:
            followed.say(said)
        reason = said
        if now is None or now["metadata"]["uid"] != metadata["uid"]:
            raise RefusedError(f"job {metadata['name']} was deleted", remedy=followed.remedy)
        if is_over(now):
            _say(followed, log.finish(seconds=_LAST_LINES_SECONDS))
            return _status(now, pods)
        time.sleep(wait)


def is_over(job: Manifest) -> bool:
    """Whether a Job has succeeded or failed."""
    return has_condition(job, "Complete") or has_condition(job, "Failed")


def _reason(api: KubernetesApi, job: Manifest, pods: list[Manifest]) -> str:
    """Why no pod runs, or none could be created; empty if one runs, or is over."""
    newest, metadata = pods[-1:], job["metadata"]
    if any((pod.get("status") or {}).get("phase", "Pending") != "Pending" for pod in newest):
        return ""
    names = {metadata["name"], *(pod["metadata"]["name"] for pod in pods)}
    events = [
        event
        for event in api.items(*EVENT, namespace=metadata["namespace"])
        if event["involvedObject"].get("name") in names
    ]
    reason = waiting_reason(newest, events)
    return f"waiting: {reason}" if reason else ""


def _status(job: Manifest, pods: list[Manifest]) -> ExitStatus:
    """The exit status of the program that the Job ended with."""
    if has_condition(job, "Complete"):
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


def _say(followed: Followed, lines: Iterable[str]) -> None:
    for line in lines:
        followed.say(line)
