"""A stack whose cluster is the test's control plane, with a team's namespace and fake operators.

The fakes of KubeRay and Kueue write the status of the real ones, and nothing else. The API server, its
admission, its scheduler and its garbage collector are real.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest, api_object
from infra.spec.outputs import StackOutputs, read_outputs
from infra.spec.release import load_release
from platform_charts.jobs.progress import SUBMITTER_CONTAINER
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import Target
from platform_charts.jobs.scheduling import JOB_LABEL
from tests.engines.kubernetes import Cluster
from tests.infra.aws.graphs import graph
from tests.training.cli.command import Answer, ask_here, assert_refused
from training.cluster.context import ClusterContext, team_named
from training.cluster.job_manifest import JobOptions, request_of
from training.cluster.job_settings import for_cluster
from training.cluster.submission import submit
from training.config.load import load_settings

TEAM = "research"


@cache
def dev_outputs() -> dict[str, Any]:
    """The outputs of the dev environment's stack."""
    exported: dict[str, Any] = json.loads(json.dumps(graph("dev").outputs))
    return {**exported, "is_recorded": True}


def outputs_file(folder: Path, **changes: object) -> Path:
    """A file with the dev stack's outputs, some of them replaced."""
    file = folder / "outputs.json"
    file.write_text(json.dumps({**dev_outputs(), **changes}))
    return file


def target(**changes: object) -> Target:
    """The dev stack, with some of its outputs replaced."""
    outputs = read_outputs({**dev_outputs(), **changes}, file="dev")
    return Target(outputs=outputs, release=load_release(), catalog=load_catalog())


def context_on(stack: Target) -> ClusterContext:
    """The team research on a stack."""
    return ClusterContext(env="dev", target=stack, team=team_named(stack.outputs, TEAM))


def objects(name: str, *overrides: str, team: str = TEAM) -> tuple[Manifest, ...]:
    """The objects of a job of that name, on two CPU workers."""
    stack = target()
    written = load_settings(["digits"], overrides=[f"run.name={name}", *overrides], environment={})
    settings = for_cluster(written, stack.outputs, team=team_named(stack.outputs, team), now=datetime.now(UTC))
    return render_job(request_of(settings, team=team, options=JobOptions()), stack)


@dataclass(frozen=True)
class TeamCluster:
    """A team's namespace, and the files with which a command reaches it."""

    api: Cluster
    namespace: str
    outputs: Path
    kubeconfig: Path

    @property
    def arguments(self) -> list[str]:
        """The command line's options that reach this namespace."""
        return ["--env", "dev", "--outputs", str(self.outputs), "--kubeconfig", str(self.kubeconfig), "--team", TEAM]

    def stack(self) -> StackOutputs:
        return read_outputs(json.loads(self.outputs.read_text()), file="dev")

    def objects(self, name: str) -> tuple[Manifest, ...]:
        found = objects(name)
        for one in found:
            one["metadata"]["namespace"] = self.namespace
        return found

    def with_outputs(self, folder: Path, **changes: object) -> TeamCluster:
        """The same cluster, with some of the stack's outputs replaced in a file in a folder."""
        return replace(self, outputs=outputs_file(folder, **{**json.loads(self.outputs.read_text()), **changes}))

    def job(self, name: str) -> Manifest | None:
        return self.api.read(self._reference("ray.io/v1", "RayJob", name))

    def existing_job(self, name: str) -> Manifest:
        return self.api.existing(self._reference("ray.io/v1", "RayJob", name))

    def run(self, command: str, *arguments: str) -> int:
        """Exit status of a command in this namespace."""
        return self.ask(command, *arguments).status

    def ask(self, command: str, *arguments: str) -> Answer:
        return ask_here(command, *self.arguments, *arguments)

    def refuses(self, status: int, said: str, command: str, *arguments: str) -> None:
        """Check that a command in this namespace ends with a status and part of an error."""
        assert_refused(status, said, command, *self.arguments, *arguments)

    def submit(self, name: str) -> Manifest:
        return submit(self.api, self.objects(name), env="dev")

    def starts(self, name: str) -> None:
        self.operator_writes(name, jobDeploymentStatus="Running", jobStatus="RUNNING")

    def ends(self, name: str) -> None:
        self.operator_writes(name, jobDeploymentStatus="Complete", jobStatus="SUCCEEDED")

    def settings_of(self, name: str) -> Manifest | None:
        return self.api.read(self._reference("v1", "ConfigMap", f"{name}-settings"))

    def existing_settings(self, name: str) -> Manifest:
        return self.api.existing(self._reference("v1", "ConfigMap", f"{name}-settings"))

    def submitter(self, name: str) -> Manifest:
        """The pod that prints the output of a job's driver."""
        labels = {JOB_LABEL: name, "batch.kubernetes.io/job-name": name}
        pod = api_object("v1", "Pod", f"{name}-submitter", namespace=self.namespace, labels=labels)
        return {**pod, "spec": {"containers": [{"name": SUBMITTER_CONTAINER, "image": "trainer"}]}}

    def operator_writes(self, name: str, **status: object) -> None:
        self.api.update_status(self._reference("ray.io/v1", "RayJob", name), status)

    def queue(self, name: str, **conditions: bool) -> str:
        """Create or change a job's Workload like Kueue; returns its name."""
        job = self.existing_job(name)
        owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": name, "uid": job["metadata"]["uid"]}
        manifest = self._reference("kueue.x-k8s.io/v1beta2", "Workload", f"rayjob-{name}")
        manifest["metadata"] |= {
            "labels": {"kueue.x-k8s.io/job-uid": owner["uid"]},
            "ownerReferences": [{**owner, "controller": True}],
        }
        container = {"name": "ray-head", "image": "trainer"}
        pods = {"name": "head", "count": 1, "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
        if self.api.read(manifest) is None:
            self.api.apply({**manifest, "spec": {"queueName": TEAM, "podSets": [pods]}}, manager="kueue")
        common = {"message": "by the fake", "lastTransitionTime": "2026-11-21T08:00:00Z"}
        written = [{"type": kind, "status": str(holds), "reason": kind, **common} for kind, holds in conditions.items()]
        # One write, as Kueue's: whoever sees that a job is admitted sees what it was given.
        given = {"clusterQueue": TEAM, "podSetAssignments": [{"name": pods["name"], "count": pods["count"]}]}
        admission = {"admission": given} if conditions.get("Admitted") else {}
        self.api.update_status(manifest, {"conditions": written, **admission})
        return str(manifest["metadata"]["name"])

    def workload(self, name: str) -> Manifest | None:
        return self.api.read(self._reference("kueue.x-k8s.io/v1beta2", "Workload", f"rayjob-{name}"))

    def _reference(self, api_version: str, kind: str, name: str) -> Manifest:
        return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": self.namespace}}


def reached_with(kubeconfig: Path) -> dict[str, Any]:
    """The output `cluster` of the dev stack on the cluster of a kubeconfig."""
    reached = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    connection = {"endpoint": reached["server"], "certificate_authority": reached["certificate-authority-data"]}
    return {**dev_outputs()["cluster"], **connection}


@contextmanager
def team_cluster_on(api: Cluster, kubeconfig: Path, folder: Path) -> Iterator[TeamCluster]:
    namespace = f"research-{uuid.uuid4().hex[:8]}"
    teams = [{**team, "namespace": namespace} if team["name"] == TEAM else team for team in dev_outputs()["teams"]]
    file = outputs_file(folder, cluster=reached_with(kubeconfig), teams=teams)
    with api.namespace(namespace):
        yield TeamCluster(api=api, namespace=namespace, outputs=file, kubeconfig=kubeconfig)
        for job in api.items("ray.io/v1", "RayJob", namespace=namespace):
            api.delete(job)
