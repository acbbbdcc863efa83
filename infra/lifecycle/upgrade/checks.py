"""What must be true of a running stack before it is upgraded: one function per check, named as a sentence."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from packaging.version import Version
from prometheus_client.parser import text_string_to_metric_families

from infra.kube.api import KubernetesApi
from infra.lifecycle.preflight.checks import Problem
from infra.lifecycle.rollout.jobs import running_jobs
from infra.spec.cluster_names import KUEUE_API, NO_EVICTION
from infra.spec.errors import NoAnswerError, NotFoundError, PlatformError
from infra.spec.manifest import Manifest
from infra.spec.node_labels import GROUP_LABEL
from infra.spec.release import AmiType, ReleaseManifest

_MINOR = re.compile(r"v1\.(\d+)")
_SKEW = 3
"""Minors that a kubelet may be older than the API server."""


class AwsVersions(Protocol):
    """Looks up what EKS has."""

    def versions(self, name: str, kubernetes: str) -> tuple[str, ...]:
        """Every version of an add-on that is compatible with a Kubernetes minor."""
        ...

    def published(self, kubernetes: str, ami_type: AmiType, release: str) -> str:
        """Where AWS publishes the AMI of a release version."""
        ...


class Backups(Protocol):
    """Knows the backups of MLflow's database."""

    def obstacle(self) -> str | None:
        """Why no backup that was restored successfully is recent enough; None if one is."""
        ...

    def gaps(self) -> Iterator[str]:
        """What is not backed up or not restored by intention."""
        ...

    def running(self) -> str | None:
        """The backup, drill or cleanup of MLflow's database that runs now; None if none does."""
        ...


@dataclass(frozen=True, kw_only=True)
class Upgraded:
    """The input of every check.

    Attributes:
        environment: name of the environment.
        release: the release to upgrade to.
        kubernetes: the Kubernetes minor that the control plane will have.
        api: the cluster's API server, as an administrator.
        aws: what EKS says about add-ons and AMIs.
        backups: what is known about backups.
        addon_names: the add-ons that the stack installs.
    """

    environment: str
    release: ReleaseManifest
    kubernetes: str
    api: KubernetesApi
    aws: AwsVersions
    backups: Backups
    addon_names: Sequence[str]


class _Answer(NamedTuple):
    """What is wrong, and how to fix it."""

    message: str
    remedy: str


Check = Callable[[Upgraded], Iterator[_Answer]]


def no_removed_api_is_in_use(case: Upgraded) -> Iterator[_Answer]:
    """No client has asked for an API that the target minor does not serve, since the API server started."""
    for api in deprecated_apis(case.api):
        if api.removed_in and Version(api.removed_in) <= Version(case.kubernetes):
            yield _Answer(
                f"{api} is in use, and Kubernetes {api.removed_in} does not serve it",
                "find the client in the audit log (annotation k8s.io/deprecated), and move it to the newer version of the API",
            )


def no_budget_blocks_every_drain(case: Upgraded) -> Iterator[_Answer]:
    """No PodDisruptionBudget, but those of jobs, forbids every eviction of the pods that it has: EKS would fail the node update."""
    for one in case.api.items("policy/v1", "PodDisruptionBudget"):
        status = one.get("status") or {}
        is_blocking = status.get("expectedPods", 0) > 0 and status.get("disruptionsAllowed", 0) == 0
        if is_blocking and not _is_of_jobs(one):
            name = f"{one['metadata']['namespace']}/{one['metadata']['name']}"
            healthy = f"{status.get('currentHealthy', 0)} of {status['expectedPods']} pods healthy"
            yield _Answer(
                f"PodDisruptionBudget {name} allows no eviction ({healthy}, {status.get('desiredHealthy', 0)} needed)",
                "repair its pods, or raise their replicas, or relax the budget for the time of the upgrade",
            )


def add_ons_support_the_minor(case: Upgraded) -> Iterator[_Answer]:
    """EKS lists the release's version of every add-on as compatible with the target minor."""
    for name in case.addon_names:
        wanted = case.release.addons[name].version
        if wanted is None:
            continue
        try:
            known = case.aws.versions(name, case.kubernetes)
        except NotFoundError as error:
            yield _Answer(str(error), "grant these credentials eks:DescribeAddonVersions")
            continue
        if wanted not in known:
            newest = ", ".join(known[:3]) or "none"
            yield _Answer(
                f"add-on {name} {wanted} is not compatible with Kubernetes {case.kubernetes}; EKS lists {newest}",
                "`make release-lock UPGRADE=1`, or set cluster.kubernetes to a minor that it supports",
            )


def node_images_are_published(case: Upgraded) -> Iterator[_Answer]:
    """AWS publishes the AMIs that the release pins for the target minor; their driver is the one that the preflight compares with CUDA."""
    for ami_type, version in case.release.node_image.releases.items():
        if version is None or not version.startswith(f"{case.kubernetes}."):
            continue
        try:
            case.aws.published(case.kubernetes, ami_type, version)
        except NoAnswerError as error:
            yield _Answer(str(error), "grant these credentials ssm:GetParameter")
        except NotFoundError as error:
            yield _Answer(
                f"AWS publishes no AMI {ami_type} {version} in this region: {error}",
                "`make release-lock UPGRADE=1` pins one that it publishes",
            )


def nodes_are_not_too_old_for_the_minor(case: Upgraded) -> Iterator[_Answer]:
    """No kubelet is more than three minors older than the target (Kubernetes, "Version Skew Policy").

    Updates pass over the nodes of a Capacity Block.
    """
    old: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node in case.api.items("v1", "Node"):
        version = _MINOR.match(_kubelet_version(node))
        if version and int(case.kubernetes.partition(".")[2]) - int(version[1]) > _SKEW:
            group = node["metadata"].get("labels", {}).get(GROUP_LABEL, "no group")
            old[group, version[0].removeprefix("v")].append(node["metadata"]["name"])
    for (group, minor), names in old.items():
        yield _Answer(
            f"{len(names)} nodes of {group} run Kubernetes {minor}, too old for a control plane of {case.kubernetes}: {names[0]}",
            "replace them first: update or rename their group, and let their jobs end",
        )


def a_backup_was_restored(case: Upgraded) -> Iterator[_Answer]:
    """MLflow's database has a recent backup that a drill has restored."""
    obstacle = case.backups.obstacle()
    if obstacle is not None:
        yield _Answer(
            obstacle, f"`make backup ENV={case.environment}`, then `make restore-drill ENV={case.environment}`"
        )


def no_backup_is_running(case: Upgraded) -> Iterator[_Answer]:
    """The schema of MLflow's database must not change under a backup, a drill or a cleanup."""
    running = case.backups.running()
    if running is not None:
        yield _Answer(running, "wait for its end: `kubectl -n mlflow get jobs --watch`")


CHECKS: tuple[Check, ...] = (
    no_removed_api_is_in_use,
    no_budget_blocks_every_drain,
    add_ons_support_the_minor,
    node_images_are_published,
    nodes_are_not_too_old_for_the_minor,
    a_backup_was_restored,
    no_backup_is_running,
)

ROLLBACK_CHECKS: tuple[Check, ...] = (no_budget_blocks_every_drain, node_images_are_published, no_backup_is_running)
"""What must be true before a step is taken back. It must not wait for a backup."""


def problems(case: Upgraded, checks: Sequence[Check] = CHECKS) -> tuple[Problem, ...]:
    """Every problem, in the order of the checks; a check that gets no answer is one too."""
    found: list[Problem] = []
    for check in checks:
        name = check.__name__.replace("_", " ")
        try:
            found += [Problem(name, *answer) for answer in check(case)]
        except PlatformError as error:
            found.append(Problem(name, str(error.args[0]), error.remedy))
    return tuple(found)


def notes(case: Upgraded, *, groups: frozenset[str]) -> Iterator[str]:
    """What an administrator should know and what stops nothing: jobs that run or wait, missing backups, APIs that a later minor removes.

    Args:
        case: the upgrade.
        groups: the node groups whose nodes it ends.
    """
    running = running_jobs(case.api)
    waiting = [one for one in case.api.items_if_served(KUEUE_API, "Workload") if not _is_admitted_or_done(one)]
    yield f"running jobs: {len(running)}, waiting jobs: {len(waiting)}; the queues are held while nodes are replaced"
    # A job that is not placed yet may get any node.
    yield from (f"  {one}" for one in running if one.groups & groups or (groups and not one.is_placed))
    yield from case.backups.gaps()
    for api in deprecated_apis(case.api):
        if not api.removed_in or Version(api.removed_in) > Version(case.kubernetes):
            when = f"Kubernetes {api.removed_in} removes it" if api.removed_in else "no minor removes it yet"
            yield f"{api} is deprecated and in use; {when}"


def running_minor(api: KubernetesApi) -> str:
    """Minor of the control plane as it runs, e.g. 1.35: the stack's outputs may be those of an upgrade that ended halfway.

    Raises:
        ApiError: the API server rejects the request.
        ConnectionLostError: it does not answer.
    """
    version = api.read_raw("/version")
    # EKS adds a plus sign to the minor.
    return f"{version['major']}.{version['minor'].rstrip('+')}"


class DeprecatedApi(NamedTuple):
    """A deprecated API that was requested since the API server started.

    Attributes:
        group: its group; empty for the core.
        version: its version.
        resource: its resource, e.g. flowschemas.
        removed_in: the Kubernetes minor that no longer serves it; empty if none is set.
    """

    group: str
    version: str
    resource: str
    removed_in: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version} {self.resource}".lstrip("/")


def deprecated_apis(api: KubernetesApi) -> tuple[DeprecatedApi, ...]:
    """The deprecated APIs that clients have requested (metric `apiserver_requested_deprecated_apis` of the API server).

    Raises:
        ApiError: the API server rejects the request.
        ConnectionLostError: it does not answer.
    """
    families = text_string_to_metric_families(api.read_text("/metrics"))
    return tuple(
        DeprecatedApi(*(sample.labels[key] for key in ("group", "version", "resource", "removed_release")))
        for family in families
        if family.name == "apiserver_requested_deprecated_apis"
        for sample in family.samples
        if sample.value
    )


def _kubelet_version(node: Manifest) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion", ""))


def _is_of_jobs(budget: Manifest) -> bool:
    """Whether a budget is one of those that keep running jobs from being evicted: the queues are held for them."""
    return (budget["spec"].get("selector") or {}).get("matchLabels") == dict(NO_EVICTION)


def _is_admitted_or_done(workload: Manifest) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(one["type"] in {"Admitted", "Finished"} and one["status"] == "True" for one in conditions)
