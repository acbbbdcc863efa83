"""`python -m job_progress`: every half a minute, read all RayJobs and their figures, and write what has changed.

It polls, because a step counter changes all the time. An unavailable API server ends the program, and Kubernetes restarts
it with a backoff; without Prometheus it still writes reasons.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from .figures import Progressing, figures
from .prometheus import Prometheus
from .reason import ENDED, reason_of

_JOBS = ("ray.io", "v1", "rayjobs")
_WORKLOADS = ("kueue.x-k8s.io", "v1beta2", "workloads")
_UID_LABEL = "kueue.x-k8s.io/job-uid"
"""Label of a Workload: the UID of its job (Kueue, constants.JobUIDLabel)."""

_PAGE = 100
"""Objects of a request: a RayJob has some 20 kB, and 14 days' jobs are kept."""

_SELECTED = 50
"""UIDs in a label selector, which is a part of the URL."""

_SECONDS = 30

Texts = Mapping[str, str | None]


class Jobs:
    """The RayJobs of a cluster and their Workloads.

    Args:
        api: client of the API server.
        columns: annotation of each column.
    """

    def __init__(self, api: client.ApiClient, *, columns: Mapping[str, str]) -> None:
        self._custom = client.CustomObjectsApi(api)
        self._columns = columns

    def list_all(self) -> Iterator[dict[str, Any]]:
        """All RayJobs."""
        return self._list(_JOBS)

    def workloads(self, uids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The newest Workload of each job, by the job's UID."""
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(uids), _SELECTED):
            selector = f"{_UID_LABEL} in ({','.join(uids[start : start + _SELECTED])})"
            for one in sorted(self._list(_WORKLOADS, label_selector=selector), key=_created):
                found[one["metadata"]["labels"][_UID_LABEL]] = one
        return found

    def texts(self, job: Mapping[str, Any]) -> dict[str, str | None]:
        """The columns of a job as they are."""
        annotations = job["metadata"].get("annotations", {})
        return {name: annotations.get(key) for name, key in self._columns.items()}

    def write(self, job: Mapping[str, Any], texts: Texts) -> str:
        """Write columns of a job, or remove empty ones; returns why they were not written, or an empty text.

        The patch names the job's UID, so it does not reach a later job of the same name. It names nothing that others
        write, so it conflicts with nobody.
        """
        metadata = job["metadata"]
        annotations = {self._columns[name]: text for name, text in texts.items()}
        patch = {"metadata": {"uid": metadata["uid"], "annotations": annotations}}
        try:
            self._custom.patch_namespaced_custom_object(
                *_JOBS[:2],
                metadata["namespace"],
                _JOBS[2],
                metadata["name"],
                patch,
                field_manager="job-progress",
                _content_type="application/merge-patch+json",
                _request_timeout=_SECONDS,
            )
        except ApiException as error:
            # The job is gone, another one has its name, Kueue's webhook restarts or refuses it: the others go on.
            return f"{metadata['namespace']}/{metadata['name']}: not written ({error.status} {error.reason})"
        return ""

    def _list(self, kind: tuple[str, str, str], **options: str) -> Iterator[dict[str, Any]]:
        token = ""
        while True:
            page = self._custom.list_cluster_custom_object(
                *kind, limit=_PAGE, _continue=token, _request_timeout=_SECONDS, **options
            )
            yield from page["items"]
            token = page["metadata"].get("continue", "")
            if not token:
                return


def poll(jobs: Jobs, runs: Mapping[tuple[str, str], Progressing] | None) -> list[str]:
    """Write the columns of every job that have changed; returns a log line for each that could not be written.

    Args:
        jobs: the cluster's jobs.
        runs: the runs and searches by namespace and name; None if they are unknown for the moment.
    """
    found = [_needed(job) for job in jobs.list_all()]
    workloads = jobs.workloads([job["metadata"]["uid"] for job in found if not _is_over(job)])
    return [line for job in found if (line := _update(jobs, job, runs, workloads.get(job["metadata"]["uid"])))]


def _update(
    jobs: Jobs,
    job: Mapping[str, Any],
    runs: Mapping[tuple[str, str], Progressing] | None,
    workload: Mapping[str, Any] | None,
) -> str:
    metadata, before = job["metadata"], jobs.texts(job)
    run = (runs or {}).get((metadata["namespace"], metadata["name"]))
    texts = {
        **figures(job, run, before=before, is_known=runs is not None),
        "reason": reason_of(job, workload),
    }
    changed = {name: text for name, text in texts.items() if text != before[name]}
    return jobs.write(job, changed) if changed else ""


def _is_over(job: Mapping[str, Any]) -> bool:
    return (job["status"] or {}).get("jobDeploymentStatus") in ENDED


def _needed(job: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a RayJob that are used, because its pod templates and field managers are most of it."""
    metadata = {name: value for name, value in job["metadata"].items() if name != "managedFields"}
    return {"metadata": metadata, "spec": {"suspend": job["spec"].get("suspend")}, "status": job.get("status")}


def _created(found: Mapping[str, Any]) -> str:
    return str(found["metadata"]["creationTimestamp"])


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m job_progress", description=__doc__)
    made.add_argument("--prometheus", required=True, metavar="URL", help="address of Prometheus")
    made.add_argument("--progress", required=True, metavar="KEY", help="annotation of steps or trials done and planned")
    made.add_argument("--time-left", required=True, metavar="KEY", help="annotation of the remaining time")
    made.add_argument("--reason", required=True, metavar="KEY", help="annotation of why a job does not run")
    made.add_argument("--interval", type=float, default=30.0, help="seconds between polls")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until killed."""
    options = parser().parse_args(arguments)
    config.load_config()
    columns = {"progress": options.progress, "time left": options.time_left, "reason": options.reason}
    jobs, prometheus, logged = Jobs(client.ApiClient(), columns=columns), Prometheus(options.prometheus), None
    while True:
        lines = poll(jobs, prometheus.runs())
        if (status := _text([prometheus.problem, *lines])) != logged:
            print(status or "every job has its columns", flush=True)
            logged = status
        time.sleep(options.interval)


def _text(lines: Iterable[str]) -> str:
    return "\n".join(line for line in lines if line)


if __name__ == "__main__":
    main()
