"""RBAC and service accounts of the teams, for jobs and for the people and pipelines that submit them; the account that writes datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infra.spec.cluster_names import DATA_ACCOUNT, DATA_NAMESPACE, SCHEDULER_ACCOUNT, SUBMITTER_ROLE
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.names import team_group, trainer_account
from infra.spec.node_labels import LABEL_PREFIX
from infra.spec.release import ReleaseManifest
from infra.spec.settings.platform import Team
from infra.spec.settings.stack import StackSettings

RBAC = "rbac.authorization.k8s.io"

Rule = Mapping[str, Sequence[str]]

_READ = ("get", "list", "watch")
_WRITE = ("create", "patch", "update", "delete")

_QUEUE_READER = f"{LABEL_PREFIX}:queue-reader"


def rule(group: str, resources: Sequence[str], verbs: Sequence[str], *, only: Sequence[str] = ()) -> Rule:
    """One RBAC rule; `only` limits it to objects with these names."""
    fields = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**fields, "resourceNames": list(only)} if only else fields


SUBMITTER_RULES: tuple[Rule, ...] = (
    rule("ray.io", ("rayjobs",), (*_READ, *_WRITE)),
    rule("ray.io", ("rayclusters",), _READ),
    rule("", ("configmaps",), (*_READ, *_WRITE)),
    rule("", ("pods", "services", "events", "persistentvolumeclaims", "resourcequotas", "limitranges"), _READ),
    rule("", ("pods/log",), ("get",)),
    # `get` is what a WebSocket asks for, and `create` what the API server checks as well since Kubernetes 1.35.
    rule("", ("pods/exec", "pods/portforward"), ("get", "create")),
    rule("", ("namespaces",), ("get",)),
    rule("events.k8s.io", ("events",), _READ),
    rule("batch", ("jobs",), _READ),
    # A schedule. Kueue queues the Jobs that a CronJob makes, so their pods do not bypass the queue.
    rule("batch", ("cronjobs",), (*_READ, *_WRITE)),
    rule("kueue.x-k8s.io", ("localqueues", "workloads"), _READ),
    # Stopping a job deactivates its Workload, because Kueue would resume a suspended RayJob. `patch` also allows changes
    # of the Workload's priority, which only matters among the team's own jobs.
    rule("kueue.x-k8s.io", ("workloads",), ("patch",)),
    rule("visibility.kueue.x-k8s.io", ("localqueues/pendingworkloads",), ("get",)),
)
"""Permissions of a team's members in its namespace: submit, follow and stop jobs, and see why a job is pending.

No creation of pods, which would bypass the queue; no reading of Secrets, although a job can mount those of its team, but that of
the team's MLflow account (`platform_charts.objects.ui_access`).
An admission policy limits `exec` and port forwarding to the pods of sessions (`platform_charts.objects.admission`), so that
any other job does only what its settings say.
"""

QUEUE_READER_RULES: tuple[Rule, ...] = (
    rule("kueue.x-k8s.io", ("clusterqueues", "cohorts", "resourceflavors", "workloadpriorityclasses"), ("get", "list")),
)
"""Cluster-wide read permissions of every team: quotas, and what teams borrow from each other."""


def access(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """Service accounts, roles and bindings of every team, and the service account of the Jobs that write datasets."""
    per_team = (one for team in settings.teams for one in _team(team, release))
    return (*per_team, *_queue_readers(settings, release), _data_account(release))


def role(
    name: str, namespace: str, rules: Sequence[Rule], *subjects: Mapping[str, str], labels: Mapping[str, str]
) -> tuple[Manifest, Manifest]:
    """A Role, and the RoleBinding of the same name that grants it to `subjects`."""
    api, reference = f"{RBAC}/v1", {"apiGroup": RBAC, "kind": "Role", "name": name}
    bound = [dict(one) for one in subjects]
    return (
        api_object(api, "Role", name, namespace=namespace, labels=labels, rules=[dict(one) for one in rules]),
        api_object(api, "RoleBinding", name, namespace=namespace, labels=labels, roleRef=reference, subjects=bound),
    )


def cluster_role(
    name: str, rules: Sequence[Rule], subjects: Sequence[Mapping[str, str]], *, labels: Mapping[str, str]
) -> tuple[Manifest, Manifest]:
    """A ClusterRole, and the ClusterRoleBinding of the same name that grants it to `subjects`."""
    api, reference = f"{RBAC}/v1", {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    bound = [dict(one) for one in subjects]
    return (
        api_object(api, "ClusterRole", name, labels=labels, rules=[dict(one) for one in rules]),
        api_object(api, "ClusterRoleBinding", name, labels=labels, roleRef=reference, subjects=bound),
    )


def _team(team: Team, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """The trainer's service account and the submitters' role.

    A job's pods mount no API token, and Pod Identity has its own.
    """
    account, object_labels = trainer_account(team.name), labels("access", version=release.platform, team=team.name)
    trainer = api_object(
        "v1",
        "ServiceAccount",
        account.name,
        namespace=account.namespace,
        labels=object_labels,
        automountServiceAccountToken=False,
    )
    return (
        trainer,
        *role(SUBMITTER_ROLE, team.name, SUBMITTER_RULES, team_subject(team), labels=object_labels),
        *_scheduler(team, object_labels),
    )


def _scheduler(team: Team, object_labels: Mapping[str, str]) -> tuple[Manifest, Manifest]:
    """The account of the pods that submit a schedule's occurrences: a member that works at night."""
    subject = {"kind": "ServiceAccount", "name": SCHEDULER_ACCOUNT, "namespace": team.name}
    common: dict[str, Any] = {"namespace": team.name, "labels": object_labels}
    return (
        api_object("v1", "ServiceAccount", SCHEDULER_ACCOUNT, **common, automountServiceAccountToken=False),
        api_object(
            f"{RBAC}/v1",
            "RoleBinding",
            SCHEDULER_ACCOUNT,
            **common,
            roleRef={"apiGroup": RBAC, "kind": "Role", "name": SUBMITTER_ROLE},
            subjects=[subject],
        ),
    )


def _data_account(release: ReleaseManifest) -> Manifest:
    """Nobody is granted anything in its namespace, so only administrators of the cluster create pods with it."""
    return api_object(
        "v1",
        "ServiceAccount",
        DATA_ACCOUNT,
        namespace=DATA_NAMESPACE,
        labels=labels("access", version=release.platform),
        automountServiceAccountToken=False,
    )


def _queue_readers(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    if not settings.teams:
        return ()
    object_labels = labels("access", version=release.platform)
    return cluster_role(
        _QUEUE_READER, QUEUE_READER_RULES, [team_subject(team) for team in settings.teams], labels=object_labels
    )


def team_subject(team: Team) -> dict[str, str]:
    """The group of a team's members, as the subject of a binding."""
    return {"apiGroup": RBAC, "kind": "Group", "name": team_group(team.name)}
