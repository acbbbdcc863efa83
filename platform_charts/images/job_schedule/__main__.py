"""`python -m job_schedule`: submit the occurrence that is due, as the schedule's service account.

Exit status: 0 submitted, or skipped by the schedule's rule; 1 the API server refused or does not answer, and the Job tries again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from .occurrence import Manifest, beyond_history, named, occurrence_name, plan, with_code

_RAY_JOBS = {"group": "ray.io", "version": "v1", "plural": "rayjobs"}
_WORKLOADS = {"group": "kueue.x-k8s.io", "version": "v1beta2", "plural": "workloads"}


class Namespace:
    """The jobs of one namespace.

    Args:
        api: client of the API server.
        name: the namespace.
    """

    def __init__(self, api: client.ApiClient, name: str) -> None:
        self._objects = client.CustomObjectsApi(api)
        self._core = client.CoreV1Api(api)
        self._name = name

    def jobs(self, selector: str) -> list[Manifest]:
        """RayJobs with these labels."""
        return self._items(_RAY_JOBS, label_selector=selector)

    def workloads(self) -> list[Manifest]:
        """Kueue's objects."""
        return self._items(_WORKLOADS)

    def submit(self, job: Manifest, others: Sequence[Manifest]) -> bool:
        """Create a RayJob and the ConfigMaps that it owns; False if it exists.

        If a ConfigMap is refused, the RayJob is deleted again, because its pods would wait for it.
        """
        try:
            made = self._objects.create_namespaced_custom_object(**_RAY_JOBS, namespace=self._name, body=job)
        except ApiException as error:
            if error.status == HTTPStatus.CONFLICT:
                return False
            raise
        owner = {key: made[key] for key in ("apiVersion", "kind")}
        owner |= {key: made["metadata"][key] for key in ("name", "uid")}
        try:
            for other in others:
                body = {**other, "metadata": {**other["metadata"], "ownerReferences": [owner]}}
                self._core.create_namespaced_config_map(self._name, body)
        except BaseException:
            self.delete(made)
            raise
        return True

    def stop(self, job: Manifest) -> None:
        """Have Kueue evict a RayJob, whose run saves its state; see `training.cluster.control`."""
        for workload in self._items(_WORKLOADS, label_selector=f"kueue.x-k8s.io/job-uid={job['metadata']['uid']}"):
            self._objects.patch_namespaced_custom_object(
                **_WORKLOADS, namespace=self._name, name=workload["metadata"]["name"], body={"spec": {"active": False}}
            )

    def delete(self, job: Manifest) -> None:
        """Delete a RayJob and what it owns."""
        try:
            self._objects.delete_namespaced_custom_object(
                **_RAY_JOBS, namespace=self._name, name=job["metadata"]["name"]
            )
        except ApiException as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    def _items(self, kind: dict[str, str], **options: Any) -> list[Manifest]:  # noqa: ANN401  # the client's own
        found = self._objects.list_namespaced_custom_object(**kind, namespace=self._name, **options)
        items: list[Manifest] = found["items"]
        return items


def run(namespace: Namespace, options: argparse.Namespace) -> str:
    """Submit the occurrence that is due; returns a line that says what was done."""
    name = occurrence_name(options.schedule, options.job)
    jobs = namespace.jobs(options.selector)
    what = plan(options.concurrency, name, jobs, namespace.workloads())
    if not what.submits:
        return f"{name} is not submitted: it exists, or an earlier occurrence has not ended"
    for earlier in what.stops:
        namespace.stop(earlier)
        print(f"{earlier['metadata']['name']} saves and stops", flush=True)
    objects = named(options.template.read_text(encoding="utf-8"), options.placeholder, name)
    if options.code is not None:
        objects = with_code(objects, options.code)
    (job,) = [one for one in objects if one["kind"] == "RayJob"]
    submitted = namespace.submit(job, [one for one in objects if one is not job])
    for old in beyond_history(jobs, keep=options.history):
        namespace.delete(old)
        print(f"{old['metadata']['name']} is beyond the history and deleted", flush=True)
    return f"{name} submitted" if submitted else f"{name} exists"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m job_schedule", description=__doc__)
    made.add_argument("--schedule", required=True, help="name of the schedule")
    made.add_argument("--namespace", required=True, help="namespace of the schedule")
    made.add_argument("--job", required=True, help="name of the Job that runs this program")
    made.add_argument("--selector", required=True, help="label selector of the schedule's RayJobs")
    made.add_argument("--template", required=True, type=Path, help="JSON file with the objects to submit")
    made.add_argument("--placeholder", required=True, help="name in the template to replace by the occurrence's")
    made.add_argument(
        "--concurrency",
        required=True,
        choices=("forbid", "replace", "allow"),
        help="what happens while an earlier occurrence runs",
    )
    made.add_argument("--history", required=True, type=int, help="ended occurrences to keep")
    made.add_argument("--code", type=Path, help="folder with the parts of the jobs' code; default: they have none")
    made.add_argument("--kubeconfig", type=Path, help="kubeconfig; default: the pod's service account")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run once."""
    options = parser().parse_args(arguments)
    if options.kubeconfig is None:
        config.load_incluster_config()
    else:
        # The client copies certificates into files. If it is killed they stay, so they are beside the kubeconfig.
        config.load_kube_config(str(options.kubeconfig), temp_file_path=str(options.kubeconfig.parent))
    try:
        print(run(Namespace(client.ApiClient(), options.namespace), options))
    except ApiException as error:
        print(f"error: the API server refuses ({error.status}): {error.body or error.reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
