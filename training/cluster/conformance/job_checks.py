"""The checks that the suite's job answers: it is submitted, followed, judged by its report, and deleted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError, ConnectionLostError
from infra.spec.errors import PlatformError
from infra.spec.manifest import Manifest
from training.cluster.conformance import catalogue
from training.cluster.conformance.check import Finding
from training.cluster.conformance.evidence import Evidence
from training.cluster.conformance.following import Limits, follow_job
from training.cluster.conformance.job import SuiteJob
from training.cluster.conformance.judges import fabric, policy, queue, storage, training
from training.cluster.conformance.runner import Runner
from training.cluster.context import ClusterContext
from training.cluster.steps import submit_job

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi


@dataclass(frozen=True, kw_only=True)
class JobChecks:
    """The checks that need the job.

    Attributes:
        api: the cluster.
        context: stack and team.
        job: the job.
        limits: how long it may take.
        runner: makes the checks.
        has_fake_nodes: no container starts on its nodes.
        steps_in_prometheus: looks for the metrics of the job.
        keep: the job stays after its end.
    """

    api: KubernetesApi
    context: ClusterContext
    job: SuiteJob
    limits: Limits
    runner: Runner
    has_fake_nodes: bool
    steps_in_prometheus: Callable[[], Finding]
    keep: bool

    def run(self) -> Evidence:
        """Run the job and judge it; returns what it has shown.

        The job of a caller who is interrupted is deleted, and so is one that has ended, unless it is to be kept.

        Raises:
            KeyboardInterrupt: the caller was interrupted.
        """
        left: Manifest | None = self.job.ray_job  # by its name: what an interrupted request has created is not known
        try:
            try:
                left = made = submit_job(self.api, self.context, self.job.manifests)
            except PlatformError as error:
                if not isinstance(error, ConnectionLostError):
                    left = None
                evidence = Evidence(end=None, trouble=f"the job was not submitted: {error.args[0]}")
            else:
                evidence = self._evidence(made)
            self.judge(evidence)
            if self.keep:
                left = None
        finally:
            if left is not None:
                self._delete(left)
        return evidence

    def _evidence(self, made: Manifest) -> Evidence:
        end = follow_job(self.api, self.context, made, limits=self.limits, only_admission=self.has_fake_nodes)
        return Evidence(end=end, is_fake=self.has_fake_nodes)

    def judge(self, evidence: Evidence) -> None:
        """Make the checks, by what the job has shown."""
        make = self.runner.make
        waited = "" if evidence.is_admitted else evidence.why
        make(catalogue.GANG, lambda: queue.gang(evidence.workload, waited=waited))
        make(catalogue.NETWORK, lambda: policy.network(evidence.network()), seconds=evidence.seconds("network"))
        seconds = evidence.seconds("objects")
        make(catalogue.OBJECTS, lambda: storage.objects(evidence.objects()), seconds=seconds)
        make(catalogue.FOREIGN_OBJECTS, lambda: storage.foreign_objects(evidence.objects()), seconds=seconds)
        self._judge_fabric(evidence)
        self._judge_training(evidence)

    def _judge_fabric(self, evidence: Evidence) -> None:
        make, shape, release = self.runner.make, self.job.shape, self.context.target.release
        branch, version = release.node_image.nvidia_driver, release.stack.cuda
        seconds = evidence.seconds("fabric")
        make(catalogue.FILES, lambda: storage.files(evidence.fabric()), seconds=seconds)
        make(catalogue.CUDA, lambda: fabric.cuda(evidence.fabric(), branch=branch, version=version), seconds=seconds)
        make(catalogue.SUM, lambda: fabric.all_reduce_sum(evidence.fabric(), shape), seconds=seconds)
        make(catalogue.BANDWIDTH, lambda: fabric.bandwidth(evidence.fabric(), shape), seconds=seconds)
        make(catalogue.EFA_USED, lambda: fabric.efa(evidence.fabric(), shape), seconds=seconds)

    def _judge_training(self, evidence: Evidence) -> None:
        make, shape, seconds = self.runner.make, self.job.shape, evidence.seconds("training")
        make(catalogue.LOSS, lambda: training.loss(evidence.training(), shape), seconds=seconds)
        make(catalogue.RESUME, lambda: training.resume(evidence.training()), seconds=seconds)
        make(
            catalogue.TRACKING,
            lambda: training.tracking(evidence.tracking(), evidence.training()),
            seconds=evidence.seconds("tracking"),
        )
        make(catalogue.METRICS, lambda: self._metrics(evidence))

    def _metrics(self, evidence: Evidence) -> Finding:
        evidence.training()  # without a run there is nothing to look for
        return self.steps_in_prometheus()

    def _delete(self, made: Manifest) -> None:
        """Delete the job, or say how to; also to somebody who interrupts that."""
        trouble = "its deletion was interrupted"
        try:
            self.api.delete(made, propagation="Foreground")
            trouble = ""
        except (ApiError, ConnectionLostError) as error:
            trouble = str(error.args[0])
        finally:
            if trouble:
                print(
                    f"warning: the suite's job may be left: {trouble}\n"
                    f"  delete it: kubectl -n {self.context.team.namespace} delete rayjob {self.job.name}",
                    file=sys.stderr,
                )
            else:
                print(f"job {self.job.name} is deleted", flush=True)
