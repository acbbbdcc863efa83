"""Who may do what in the cluster: the accounts that jobs run as, and the people and pipelines that submit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

_SUBMITTER = "submitter"
_QUEUE_READER = f"{LABEL_PREFIX}:queue-reader"


def rule(group: str, resources: Sequence[str], verbs: Sequence[str], *, only: Sequence[str] = ()) -> Rule:
    """One RBAC rule; `only` names the objects it is about."""
    found = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**found, "resourceNames": list(only)} if only else found


SUBMITTER_RULES: tuple[Rule, ...] = (
    rule("ray.io", ("rayjobs", "rayclusters"), (*_READ, *_WRITE)),
    rule("", ("configmaps",), (*_READ, *_WRITE)),
    rule("", ("pods", "services", "events", "persistentvolumeclaims", "resourcequotas", "limitranges"), _READ),
    rule("", ("pods/log",), ("get",)),
    rule("", ("namespaces",), ("get",)),
    rule("events.k8s.io", ("events",), _READ),
    rule("batch", ("jobs",), _READ),
    rule("kueue.x-k8s.io", ("localqueues", "workloads"), _READ),
    # A job is stopped by its Workload: Kueue would resume one that is only suspended. The Workload's priority, which may
    # be patched as well, counts among the team's own jobs.
    rule("kueue.x-k8s.io", ("workloads",), ("patch",)),
    rule("visibility.kueue.x-k8s.io", ("localqueues/pendingworkloads",), ("get",)),
)
"""What a member of a team may do in its namespace: submit, follow and stop jobs, and see why one waits.

No pods are created by hand, because those would pass by the queue; no `exec` and no port is forwarded, because a job is
what its settings say and nothing else; no Secret is read. A job does see the Secrets it mounts: those of its own team.
"""

QUEUE_READER_RULES: tuple[Rule, ...] = (
    rule("kueue.x-k8s.io", ("clusterqueues", "cohorts", "resourceflavors", "workloadpriorityclasses"), ("get", "list")),
)
"""What every team may read of the whole cluster: how the GPUs are divided, and who has lent what to whom."""


def access(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """Accounts and rights of every team."""
    per_team = (found for team in settings.teams for found in _team(team, release))
    return (*per_team, *_queue_readers(settings, release))


def role(
    name: str, namespace: str, rules: Sequence[Rule], subject: Mapping[str, str], *, labels: Mapping[str, str]
) -> tuple[Manifest, Manifest]:
    """A Role and the RoleBinding that gives it to `subject`; both have the same name."""
    api = f"{RBAC}/v1"
    reference = {"apiGroup": RBAC, "kind": "Role", "name": name}
    return (
        api_object(api, "Role", name, namespace=namespace, labels=labels, rules=[dict(one) for one in rules]),
        api_object(
            api,
            "RoleBinding",
            name,
            namespace=namespace,
            labels=labels,
            roleRef=reference,
            subjects=[dict(subject)],
        ),
    )


def cluster_role(
    name: str, rules: Sequence[Rule], subjects: Sequence[Mapping[str, str]], *, labels: Mapping[str, str]
) -> tuple[Manifest, Manifest]:
    """A ClusterRole and the ClusterRoleBinding that gives it to `subjects`; both have the same name."""
    api, reference = f"{RBAC}/v1", {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    bound = [dict(one) for one in subjects]
    return (
        api_object(api, "ClusterRole", name, labels=labels, rules=[dict(one) for one in rules]),
        api_object(api, "ClusterRoleBinding", name, labels=labels, roleRef=reference, subjects=bound),
    )


def _team(team: Team, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """A job's pods have no token of the cluster: they need none, and Pod Identity brings its own.

    Only the head of an autoscaling RayCluster talks to the API server. KubeRay makes an account for it alone, with rights
    on the pods of the namespace.
    """
    account, marks = trainer_account(team.name), labels("access", version=release.platform, team=team.name)
    trainer = api_object(
        "v1",
        "ServiceAccount",
        account.name,
        namespace=account.namespace,
        labels=marks,
        automountServiceAccountToken=False,
    )
    return (trainer, *role(_SUBMITTER, team.name, SUBMITTER_RULES, _group(team), labels=marks))


def _queue_readers(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    if not settings.teams:
        return ()
    marks = labels("access", version=release.platform)
    return cluster_role(_QUEUE_READER, QUEUE_READER_RULES, [_group(team) for team in settings.teams], labels=marks)


def _group(team: Team) -> dict[str, str]:
    return {"apiGroup": RBAC, "kind": "Group", "name": team_group(team.name)}
