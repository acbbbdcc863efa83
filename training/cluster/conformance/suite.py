"""The suite: which facts each check needs, in which order they are read, and which judge gets them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from infra.spec.cluster_names import LAST_SCRAPES_SECONDS
from infra.spec.errors import PlatformError
from infra.spec.node_labels import GPU_RESOURCE, HEAD_GROUP, SYSTEM_GROUP
from training.cluster.conformance import catalogue
from training.cluster.conformance.check import Check, Finding, skipped
from training.cluster.conformance.evidence import Evidence
from training.cluster.conformance.expected_rules import expected_rules
from training.cluster.conformance.following import Limits
from training.cluster.conformance.job import SuiteJob
from training.cluster.conformance.job_checks import JobChecks
from training.cluster.conformance.judges import monitoring, nodes, policy, storage
from training.cluster.conformance.judges.nodes import NodeFacts
from training.cluster.conformance.notes import notes
from training.cluster.conformance.probes import policies, prometheus
from training.cluster.conformance.probes.nodes import are_fake, node_facts
from training.cluster.conformance.probes.volumes import volume_facts
from training.cluster.conformance.runner import Runner
from training.cluster.context import ClusterContext
from training.cluster.uis.ui import Stack

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_POD_SECURITY = ('violates PodSecurity "restricted',)
_QUOTA = ("exceeded quota", GPU_RESOURCE)
_ADMISSION_POLICY = ("ValidatingAdmissionPolicy", "ttlSecondsAfterFinished must be at most")
"""Texts of refusals, with what each of them is about: another quota or rule may refuse the same object."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """All checks of a stack.

    Attributes:
        stack: the stack, and the caller's connection.
        context: the stack with the team whose namespace the checks use.
        job: the suite's job.
        limits: how long the job may take.
        runner: makes the checks.
        prometheus_url: where the stack's Prometheus answers; None forwards a port of its pod.
        keep: the job stays after its end.
    """

    stack: Stack
    context: ClusterContext
    job: SuiteJob
    limits: Limits
    runner: Runner
    prometheus_url: str | None = None
    keep: bool = False

    def run(self) -> str:
        """Make the chosen checks; returns what stood in for hardware or services, in words.

        If the job's group has no node yet, the job brings some, and nodes are looked at after it.

        Raises:
            KeyboardInterrupt: the caller was interrupted; the job is deleted.
        """
        needs_job = self.runner.wants(*(one for one in catalogue.CHECKS if one.needs_job))
        brings_nodes = needs_job and not self._has_nodes()
        if not brings_nodes:
            self._nodes()
        self._policies()
        self.runner.make(catalogue.RULES, self._rules)
        self.runner.make(catalogue.ALERTS, self._alerts)
        self.runner.make(
            catalogue.VOLUMES, lambda: storage.volumes(volume_facts(self._api, self.context.target.outputs.teams))
        )
        evidence: Evidence | None = None
        if needs_job:
            checks = JobChecks(
                api=self._api,
                context=self.context,
                job=self.job,
                limits=self.limits,
                runner=self.runner,
                has_fake_nodes=self._has_fake({HEAD_GROUP, *([self.job.group.name] if self.job.group else [])}),
                steps_in_prometheus=self._steps,
                keep=self.keep,
            )
            evidence = checks.run()
        if brings_nodes:
            self._nodes()
        return notes(self._first_nodes, evidence, self.job.shape)

    @property
    def _api(self) -> KubernetesApi:
        return self.stack.api

    def _has_fake(self, groups: set[str]) -> bool:
        """Whether no container starts on the nodes of one of these groups."""
        return are_fake(self._first_nodes, groups)

    def _has_nodes(self) -> bool:
        """Whether the group of the job has a node that takes jobs; head nodes count as there."""
        group = self.job.group
        return group is None or any(one.group == group.name and nodes.takes_jobs(one) for one in self._first_nodes)

    @cached_property
    def _first_nodes(self) -> tuple[NodeFacts, ...]:
        """The nodes at first; none for a caller who may not look, or without a connection: the checks of nodes report that."""
        try:
            return node_facts(self._api)
        except PlatformError:
            return ()

    def _nodes(self) -> None:
        groups, make = self.context.target.outputs.gpu_groups, self.runner.make
        branch = self.context.target.release.node_image.nvidia_driver
        found = cache(partial(node_facts, self._api))
        make(catalogue.NODE_GPUS, lambda: nodes.gpus(found(), groups))
        make(catalogue.NODE_EFA, lambda: nodes.efa(found(), groups))
        make(catalogue.NODE_DRIVER, lambda: nodes.driver(found(), groups, branch=branch))

    def _policies(self) -> None:
        outputs, namespace = self.context.target.outputs, self.context.team.namespace
        nfs = policies.nfs_pod(namespace, file_system=outputs.storage.efs_id, region=outputs.region)
        self.runner.make(
            catalogue.POD_ADMITTED,
            lambda: policy.admitted(policies.answer_to(self._api, policies.obedient_pod(namespace))),
        )
        refused = (
            (catalogue.POD_PRIVILEGED, policies.privileged_pod(namespace), "Pod Security", _POD_SECURITY),
            (catalogue.POD_HOST_PATH, policies.host_path_pod(namespace), "Pod Security", _POD_SECURITY),
            (catalogue.POD_NFS, nfs, "Pod Security", _POD_SECURITY),
            (catalogue.POD_OVERSIZE, policies.oversize_pod(namespace), "the team's quota", _QUOTA),
            (catalogue.JOB_LINGERS, policies.lingering_job(self.job.ray_job), "an admission policy", _ADMISSION_POLICY),
        )
        for check, manifest, by, marks in refused:
            self._refused(check, partial(policies.answer_to, self._api, manifest), by=by, marks=marks)
        self.runner.make(catalogue.FOREIGN_NAMESPACE, self._foreign_namespace)

    def _refused(self, check: Check, ask: Callable[[], policy.Answer], *, by: str, marks: Sequence[str]) -> None:
        self.runner.make(check, lambda: policy.refused(ask(), by=by, marks=marks))

    def _foreign_namespace(self) -> Finding:
        team = self.context.team
        others = [one for one in self.context.target.outputs.teams if one.name != team.name]
        if not others:
            return skipped("the stack has no other team", expected="no job in another team's namespace")
        return policy.own_namespace_only(
            own=policies.may_submit(self._api, team=team.name, namespace=team.namespace),
            foreign=policies.may_submit(self._api, team=team.name, namespace=others[0].namespace),
            team=team.name,
            other=others[0].name,
        )

    def _rules(self) -> Finding:
        expected = expected_rules(self.context.target.outputs)
        if reason := self._without_rules():
            return skipped(reason, expected=f"{len(expected)} groups of rules")
        with prometheus.reached(self.stack, url=self.prometheus_url) as server:
            return monitoring.rules(server.rule_groups(), expected=expected)

    def _alerts(self) -> Finding:
        if reason := self._without_rules():
            return skipped(reason, expected=f"alert {prometheus.WATCHDOG} at Alertmanager")
        with prometheus.reached(self.stack, url=self.prometheus_url) as server:
            return monitoring.alerts(server.alerting(), name=prometheus.WATCHDOG)

    def _without_rules(self) -> str:
        """Why there can be no Prometheus that evaluates rules; empty if there can."""
        reason = self._without_prometheus()
        if not reason and self.prometheus_url is None and prometheus.stand_in(self._api):
            return "a sandbox's own Prometheus, which evaluates no rules"
        return reason

    def _steps(self) -> Finding:
        if reason := self._without_prometheus():
            return skipped(reason, expected=f"metrics of job {self.job.name}")
        with prometheus.reached(self.stack, url=self.prometheus_url) as server:
            return monitoring.metrics(server.steps(self.job.name, wait_seconds=LAST_SCRAPES_SECONDS), run=self.job.name)

    def _without_prometheus(self) -> str:
        """Why there can be no Prometheus; empty if there can."""
        if self.prometheus_url is None and self._has_fake({SYSTEM_GROUP}):
            return "the nodes of the platform are fake, so that Prometheus does not run"
        return ""
