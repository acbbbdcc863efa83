"""The commands `backup` and `restore-drill`: start a Job from the environment's CronJob, follow it, and mirror its exit status."""

from __future__ import annotations

import copy
import os
import secrets
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infra.kube.stack_connection import connect
from infra.spec.cluster_names import MLFLOW_BACKUP, MLFLOW_NAMESPACE, MLFLOW_RESTORE_DRILL
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object
from infra.spec.stack_outputs import read_stack
from training.cluster.platform_job import Followed, follow
from training.errors import ExitStatus
from training.options.services import BackupOptions, RestoreDrillOptions

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

REPORT = "report: "
"""Begins the line of the log with the outcome in JSON (`platform_charts.images.mlflow_server.backup.report`)."""


@dataclass
class Output:
    """Where the lines of the log go: as they are, or only the report, as JSON.

    Attributes:
        as_json: print the report on standard output, and everything else on standard error.
    """

    as_json: bool
    _reports: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        """Print a line of the log, unless it is the report."""
        if line.startswith(REPORT):
            self._reports.append(line.removeprefix(REPORT))
        else:
            print(line, file=sys.stderr if self.as_json else sys.stdout, flush=True)

    def end(self) -> None:
        """Print the last report, if asked for."""
        if self.as_json and self._reports:
            print(self._reports[-1], flush=True)


def backup(options: BackupOptions) -> ExitStatus:
    """Back MLflow up now."""
    return _run(options, MLFLOW_BACKUP, "the backup", [])


def restore_drill(options: RestoreDrillOptions) -> ExitStatus:
    """Restore a backup beside MLflow's databases, compare, and drop it or keep it."""
    named = ["--backup", options.backup] if options.backup is not None else []
    return _run(options, MLFLOW_RESTORE_DRILL, "the drill", [*named, *(["--keep"] if options.keep else [])])


def start_job(api: KubernetesApi, cron_job: str, arguments: list[str], *, environment: str) -> Manifest:
    """Create a Job from a CronJob's template, as `kubectl create job --from` does; the CronJob counts its success.

    Args:
        api: the cluster.
        cron_job: name of a CronJob in MLflow's namespace, which may be suspended.
        arguments: of the program, beside those of the CronJob.
        environment: name of the environment, for the message.

    Raises:
        RefusedError: there is no such CronJob.
        ApiError: the API server refuses the Job.
    """
    found = api.read(api_object("batch/v1", "CronJob", cron_job, namespace=MLFLOW_NAMESPACE))
    if found is None:
        raise RefusedError(
            f"the cluster of {environment} has no CronJob {MLFLOW_NAMESPACE}/{cron_job}",
            remedy=f"bring the stack up with this release: make up ENV={environment}",
        )
    template = copy.deepcopy(found["spec"]["jobTemplate"])
    (container,) = template["spec"]["template"]["spec"]["containers"]
    container["command"] += arguments
    job = api_object(
        "batch/v1",
        "Job",
        f"{cron_job}-manual-{secrets.token_hex(3)}",
        namespace=MLFLOW_NAMESPACE,
        labels=template["metadata"]["labels"],
        spec=template["spec"],
    )
    job["metadata"]["annotations"] = {"cronjob.kubernetes.io/instantiate": "manual"}
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": cron_job, "uid": found["metadata"]["uid"]}
    job["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return api.create(job)


def follow_job(api: KubernetesApi, job: Manifest, subject: str, output: Output) -> ExitStatus:
    """Print the log of the Job until it is over; returns the exit status of its program.

    Raises:
        ApiError: the API server denies reading the Job.
        RefusedError: the Job was deleted.
    """
    (container,) = job["spec"]["template"]["spec"]["containers"]
    followed = Followed(container=container["name"], subject=subject, remedy="run the command again", say=output.say)
    status = follow(api, job, followed)
    output.end()
    return status


def _run(options: BackupOptions, cron_job: str, subject: str, arguments: list[str]) -> ExitStatus:
    # Not `read_target`: a stack of another release is backed up too, before it is upgraded.
    outputs = read_stack(options.env, file=options.outputs, environment=os.environ)
    api = connect(outputs, kubeconfig=options.kubeconfig, environment=os.environ)
    job = start_job(api, cron_job, arguments, environment=options.env)
    name = job["metadata"]["name"]
    output = Output(as_json=options.json)
    output.say(f"{subject} of {options.env}: job {name} in {MLFLOW_NAMESPACE}")
    if options.detach:
        output.say(f"  its log: kubectl -n {MLFLOW_NAMESPACE} logs -f job/{name}")
        return ExitStatus.DONE
    try:
        return follow_job(api, job, subject, output)
    except KeyboardInterrupt:
        print(
            f"{subject} goes on\n  its log:  kubectl -n {MLFLOW_NAMESPACE} logs -f job/{name}\n"
            f"  stop it:  kubectl -n {MLFLOW_NAMESPACE} delete job {name}",
            file=sys.stderr,
        )
        return ExitStatus.INTERRUPTED
