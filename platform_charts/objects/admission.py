"""Admission policies, mostly of the teams' namespaces: what RBAC cannot say and Kueue does not check.

Kueue counts a job's pods once, from the job's spec, and releases their quota when the job's status says that it is over.
The rules refuse what makes KubeRay run other pods than those, or run them longer. Each was a way around the quota with
Kueue 0.19.2 and KubeRay 1.6.2 (`tests/platform_charts/test_cluster_limits.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from infra.spec.cluster_names import (
    ELASTIC_ANNOTATION,
    JOB_SIZER_ACCOUNT,
    KUBERAY_NAMESPACE,
    KUEUE_NAMESPACE,
    LAST_SCRAPES_SECONDS,
    LONGEST_GRACE_SECONDS,
    MONITORING_NAMESPACE,
    SESSION_PREFIX,
)
from infra.spec.manifest import TEAM_LABEL, Manifest, api_object, labels
from infra.spec.names import TEAM_GROUP_PREFIX
from infra.spec.node_labels import LABEL_PREFIX
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from infra.spec.uis import GRAFANA, GRAFANA_LOGIN

_API = "admissionregistration.k8s.io/v1"

_OPERATORS = (
    f"system:serviceaccounts:{KUEUE_NAMESPACE}",
    f"system:serviceaccounts:{KUBERAY_NAMESPACE}",
    # The garbage collector changes owner references.
    "system:serviceaccounts:kube-system",
    # The control plane itself. No role of the stack has this group: EKS grants administrators an access policy instead.
    "system:masters",
)
"""Groups of those that start, suspend and own jobs."""


class Rule(NamedTuple):
    """A CEL expression that holds for every admitted object, and the message for one for which it does not hold."""

    holds: str
    message: str


def _unchanged(field: str, *, apart_from: Sequence[str]) -> str:
    """CEL: a part of the object is as it was, but for some of its own fields.

    Args:
        field: path of the part, which both versions of the object have, e.g. `spec`.
        apart_from: names of fields of the part.
    """
    new, old, free = f"dyn(object.{field})", f"dyn(oldObject.{field})", list(apart_from)
    return (
        f"{new}.all(key, key in {free} || (key in {old} && {new}[key] == {old}[key])) && "
        f"{old}.all(key, key in {free} || key in {new})"
    )


def _resized(cluster: str, *, may_change: Sequence[str]) -> str:
    """CEL: nothing of a Ray cluster with one worker group differs but the size of that group.

    Args:
        cluster: path of the cluster's spec in the object.
        may_change: fields of the group that may differ.
    """
    groups = f"{cluster}.workerGroupSpecs"
    return (
        f"object.{groups}.size() == 1 && oldObject.{groups}.size() == 1 && "
        f"{_unchanged(cluster, apart_from=['workerGroupSpecs'])} && "
        f"{_unchanged(f'{groups}[0]', apart_from=may_change)}"
    )


_IS_ELASTIC = f"object.metadata.?annotations[?'{ELASTIC_ANNOTATION}'].orValue('') == 'true'"

_SIZER = f"system:serviceaccount:{MONITORING_NAMESPACE}:{JOB_SIZER_ACCOUNT}"
"""Who may change the number of an elastic job's workers; see `platform_charts.objects.job_sizer`."""

_JOB_VARIABLES = {
    "isOperator": f"request.userInfo.groups.exists(group, group in {list(_OPERATORS)})",
    "isElastic": _IS_ELASTIC,
    "isResized": (
        f"request.userInfo.username == '{_SIZER}' && variables.isElastic && "
        f"{_unchanged('spec', apart_from=['rayClusterSpec'])} && "
        f"{_resized('spec.rayClusterSpec', may_change=['replicas'])}"
    ),
    "groups": "object.spec.?rayClusterSpec.workerGroupSpecs.orValue([])",
    "pods": (
        "object.spec.?rayClusterSpec.headGroupSpec.template.spec.optMap(head, [head]).orValue([])"
        " + variables.groups.map(group, group.template.spec)"
        " + object.spec.?submitterPodTemplate.spec.optMap(submitter, [submitter]).orValue([])"
    ),
}

JOB_RULES = (
    Rule(
        "!has(object.spec.clusterSelector)",
        "spec.clusterSelector is not allowed: Kueue does not queue a job on an existing cluster, and counts none of its "
        "pods. Remove it; `ray job submit` sends work to the cluster of a session",
    ),
    Rule(
        "variables.isElastic || variables.groups.all(group, group.replicas == group.minReplicas && "
        "group.replicas == group.maxReplicas)",
        "replicas, minReplicas and maxReplicas of a worker group must be equal: Kueue counts the first, KubeRay keeps the "
        "number between the others",
    ),
    Rule(
        "!variables.isElastic || (variables.groups.size() == 1 && variables.groups.all(group, 1 <= group.minReplicas && "
        "group.minReplicas <= group.replicas && group.replicas <= group.maxReplicas && group.?numOfHosts.orValue(1) == 1))",
        "an elastic job has one worker group with numOfHosts=1 and 1 <= minReplicas <= replicas <= maxReplicas: Kueue counts "
        "replicas, KubeRay keeps the number between the others",
    ),
    Rule(
        "!object.spec.?rayClusterSpec.enableInTreeAutoscaling.orValue(false)",
        "enableInTreeAutoscaling is not allowed: Ray's autoscaler would give the job's code a token that changes every "
        "cluster of the team. Set the number of workers",
    ),
    Rule(
        f"request.operation == 'CREATE' || object.metadata.?annotations[?'{ELASTIC_ANNOTATION}'] == "
        f"oldObject.metadata.?annotations[?'{ELASTIC_ANNOTATION}']",
        f"the annotation {ELASTIC_ANNOTATION} of a submitted job cannot be changed: Kueue counts the pods of an elastic job in "
        "another way. Delete the job and submit it again",
    ),
    Rule(
        f"object.spec.?ttlSecondsAfterFinished.orValue(0) <= {LAST_SCRAPES_SECONDS}",
        f"ttlSecondsAfterFinished must be at most {LAST_SCRAPES_SECONDS}: the cluster keeps its GPUs for that time, while "
        "Kueue has released their quota",
    ),
    Rule(
        "!has(object.spec.deletionStrategy)",
        "deletionStrategy is not allowed: the cluster would keep its GPUs while Kueue has released their quota. Use "
        "shutdownAfterJobFinishes",
    ),
    Rule(
        f"variables.pods.all(pod, pod.?terminationGracePeriodSeconds.orValue(30) <= {LONGEST_GRACE_SECONDS})",
        f"terminationGracePeriodSeconds must be at most {LONGEST_GRACE_SECONDS}: a pod that is asked to end keeps its GPUs for "
        "that time, while Kueue has released their quota",
    ),
    Rule(
        "variables.pods.all(pod, !has(pod.nodeName))",
        "nodeName is not allowed: a pod with a node does not go through the scheduler, and takes GPUs of another group than "
        "Kueue counted",
    ),
    Rule(
        "variables.isOperator || object.metadata.?ownerReferences.orValue([]).size() == 0",
        "ownerReferences are not allowed: Kueue does not queue a job that belongs to an admitted job",
    ),
    Rule(
        "request.operation == 'CREATE' || variables.isOperator || object.spec == oldObject.spec || variables.isResized",
        "the spec of a submitted job cannot be changed: Kueue has counted its pods. Delete the job and submit it again; "
        "`make stop` and `make resume` suspend and resume it",
    ),
)

CLUSTER_RULES = (
    Rule(
        f"{_IS_ELASTIC} && {_resized('spec', may_change=['replicas', 'scaleStrategy'])} && "
        "object.spec.workerGroupSpecs[0].minReplicas <= object.spec.workerGroupSpecs[0].replicas && "
        "object.spec.workerGroupSpecs[0].replicas <= object.spec.workerGroupSpecs[0].maxReplicas",
        "the sizer of elastic jobs changes only how many workers the cluster of an elastic job has, between minReplicas and "
        "maxReplicas, and which ones leave",
    ),
)
"""For the sizer, which may patch RayClusters. Teams may not, and the operators do not ask for it."""

WORKLOAD_RULES = (
    Rule(
        "dyn(object.spec).all(key, key == 'active' || (key in dyn(oldObject.spec) && "
        "dyn(object.spec)[key] == dyn(oldObject.spec)[key])) && "
        "dyn(oldObject.spec).all(key, key == 'active' || key in dyn(object.spec)) && "
        "object.metadata.?labels == oldObject.metadata.?labels && "
        "object.metadata.?annotations == oldObject.metadata.?annotations && "
        "object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences && "
        "object.metadata.?finalizers == oldObject.metadata.?finalizers",
        "only spec.active of a Workload can be changed: Kueue writes the rest, and counts quota by it",
    ),
)

_CRON_PODS = {"pod": "object.spec.jobTemplate.spec.template.spec"}

CRON_RULES = (
    Rule(
        "(variables.pod.containers + variables.pod.?initContainers.orValue([])).all(container, "
        "(container.?resources.limits.orValue({}).map(name, name) + container.?resources.requests.orValue({}).map(name, name))"
        ".all(name, name in ['cpu', 'memory', 'ephemeral-storage']))",
        "the pods of a CronJob may ask for cpu, memory and ephemeral-storage only: a schedule submits jobs, and they ask for GPUs",
    ),
    Rule(
        "!has(variables.pod.nodeName)",
        "nodeName is not allowed: a pod with a node does not go through the scheduler",
    ),
)

INTERACTIVE_RULES = (
    Rule(
        f"request.name.startsWith('{SESSION_PREFIX}')",
        f"shells and port forwards are for the pods of sessions, whose names begin with {SESSION_PREFIX}: other jobs do "
        "only what their settings say",
    ),
)


VIEWER_RULES = (
    Rule(
        f"request.name.startsWith('{GRAFANA}-') || authorizer.group('').resource('secrets')"
        f".namespace(request.namespace).name('{GRAFANA_LOGIN.secret}').check('get').allowed()",
        "with the role grafana-viewer, port forwards are for Grafana only: Prometheus and Alertmanager ask for no login, "
        "and whoever reaches Alertmanager silences the alerts of every team. The role monitoring-ui allows them",
    ),
)
"""For the namespace of monitoring. RBAC cannot tell its pods apart; whoever may read the login of Grafana's administrator may
forward the port of any."""


def admission(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """The policies and their bindings to the teams' namespaces, and to that of monitoring where teams may go there."""
    members = f"request.userInfo.groups.exists(group, group.startsWith('{TEAM_GROUP_PREFIX}'))"
    others = f"!request.userInfo.groups.exists(group, group in {list(_OPERATORS)})"
    jobs = _match("ray.io", ("rayjobs",), ("CREATE", "UPDATE"))
    workloads = _match("kueue.x-k8s.io", ("workloads",), ("UPDATE",))
    connections = _match("", ("pods/exec", "pods/portforward"), ("CONNECT",))
    forwards = _match("", ("pods/portforward",), ("CONNECT",), namespace=MONITORING_NAMESPACE)
    viewers = _policy("grafana-viewers", release, forwards, VIEWER_RULES) if settings.monitoring.open_to_teams else ()
    return (
        *_policy("team-jobs", release, jobs, JOB_RULES, variables=_JOB_VARIABLES),
        *_policy(
            "team-schedules",
            release,
            _match("batch", ("cronjobs",), ("CREATE", "UPDATE")),
            CRON_RULES,
            variables=_CRON_PODS,
        ),
        *_policy(
            "team-clusters",
            release,
            _match("ray.io", ("rayclusters",), ("UPDATE",)),
            CLUSTER_RULES,
            condition=f"request.userInfo.username == '{_SIZER}'",
        ),
        *_policy("team-workloads", release, workloads, WORKLOAD_RULES, condition=others),
        *_policy("team-connections", release, connections, INTERACTIVE_RULES, condition=members),
        *viewers,
    )


def _match(
    group: str, resources: Sequence[str], operations: Sequence[str], *, namespace: str | None = None
) -> Manifest:
    """What a policy is about; in any version, to which the API server converts its objects.

    Args:
        group: API group.
        resources: resources of the group.
        operations: operations on them.
        namespace: where; None for the teams' namespaces.
    """
    rule = {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": list(operations),
        "resources": list(resources),
        "scope": "Namespaced",
    }
    teams = {"matchExpressions": [{"key": TEAM_LABEL, "operator": "Exists"}]}
    where = teams if namespace is None else {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return {"resourceRules": [rule], "namespaceSelector": where, "objectSelector": {}, "matchPolicy": "Equivalent"}


def _policy(
    name: str,
    release: ReleaseManifest,
    match: Manifest,
    rules: Sequence[Rule],
    *,
    variables: Mapping[str, str] | None = None,
    condition: str | None = None,
) -> tuple[Manifest, Manifest]:
    """A policy and its binding, which refuses what violates it; so does an expression that cannot be evaluated."""
    name, common = f"{LABEL_PREFIX}-{name}", labels("admission", version=release.platform)
    spec: Manifest = {
        "failurePolicy": "Fail",
        "matchConstraints": match,
        "validations": [{"expression": rule.holds, "message": rule.message, "reason": "Forbidden"} for rule in rules],
    }
    if variables:
        spec["variables"] = [{"name": key, "expression": value} for key, value in variables.items()]
    if condition is not None:
        spec["matchConditions"] = [{"name": "who", "expression": condition}]
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return (
        api_object(_API, "ValidatingAdmissionPolicy", name, labels=common, spec=spec),
        api_object(_API, "ValidatingAdmissionPolicyBinding", name, labels=common, spec=binding),
    )
