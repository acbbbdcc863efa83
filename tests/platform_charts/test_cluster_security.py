"""Admission and authorization on a real API server: Pod Security, quotas, limit ranges, RBAC of teams."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import pytest

from infra.kube.errors import ApiError
from infra.spec.manifest import Manifest
from infra.spec.names import trainer_account
from platform_charts.jobs.rayjob import render_job
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_jobs import CONFIGS, fits, job, rayjob, shipped
from tests.engines.kubernetes_platform import Environment, in_dev
from tests.kuberay.expand import expand

GPU = "nvidia.com/gpu"
Change = Callable[[Manifest], None]


def test_every_pod_of_every_shipped_config_passes_pod_security(environment: Environment) -> None:
    requests = [shipped(config, team=environment.team) for config in CONFIGS]
    pods = [pod for one in requests if fits(one, environment) for pod in expand(rayjob(environment, one))]
    assert pods
    for pod in pods:
        environment.cluster.create(pod, is_dry_run=True)
    assert environment.cluster.warnings == []


def _privileged(pod: Manifest) -> None:
    pod["spec"]["containers"][0]["securityContext"].update(privileged=True, allowPrivilegeEscalation=True)


def _with_resources(**resources: dict[str, str]) -> Change:
    return lambda pod: pod["spec"]["containers"][0].update(resources=resources)


@in_dev
def test_a_pod_that_breaks_a_limit_of_its_team_is_refused(environment: Environment) -> None:
    too_many = {GPU: "1000"}
    attempts: dict[str, Change] = {
        r'violates PodSecurity "restricted:v1\.\d+"': _privileged,
        r"exceeded quota: team, requested: requests\.nvidia\.com/gpu=1k": _with_resources(
            requests=too_many, limits=too_many
        ),
        "maximum memory usage per Container is": _with_resources(limits={"memory": "100Ti"}),
        "exceeded quota: no-critical-pods": lambda pod: pod["spec"].update(priorityClassName="system-node-critical"),
    }
    for rule, change in attempts.items():
        pod = _head(environment)
        change(pod)
        with pytest.raises(ApiError, match=rule):
            environment.cluster.create(pod, is_dry_run=True)


@in_dev
def test_a_service_that_exposes_the_cluster_and_a_teams_own_volume_claim_are_refused(environment: Environment) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for kind, spec, rule in (
        ("Service", {"type": "LoadBalancer", "ports": [{"port": 8265}]}, "exceeded quota: team"),
        ("Service", {"type": "NodePort", "ports": [{"port": 8265}]}, "exceeded quota: team"),
        ("PersistentVolumeClaim", claim, "exceeded quota: team, requested: persistentvolumeclaims=1"),
    ):
        with pytest.raises(ApiError, match=rule):
            environment.cluster.create(_object(environment, kind, spec=spec), is_dry_run=True)


@in_dev
def test_a_container_without_resources_gets_the_default_requests(environment: Environment) -> None:
    pod = _head(environment)
    del pod["spec"]["containers"][0]["resources"]
    given = environment.cluster.create(pod, is_dry_run=True)["spec"]["containers"][0]["resources"]
    assert given["requests"] == {"cpu": "250m", "memory": "512Mi"}


@in_dev
def test_a_member_submits_to_their_own_team(environment: Environment) -> None:
    team = environment.team
    member = environment.member(team)
    for manifest in render_job(job("own", team=team), environment.target):
        member.apply(manifest, is_dry_run=True)
    assert member.items("v1", "Pod", namespace=team) == environment.cluster.items("v1", "Pod", namespace=team)


@in_dev
def test_a_member_neither_submits_to_nor_reads_another_team(environment: Environment) -> None:
    own, other = (team.name for team in environment.settings.teams[:2])
    member = environment.member(own)
    for manifest in render_job(job("foreign", team=other), environment.target):
        _is_forbidden(partial(member.apply, manifest, is_dry_run=True))
    for version, kind in (("ray.io/v1", "RayJob"), ("v1", "Pod"), ("v1", "ConfigMap")):
        _is_forbidden(partial(member.items, version, kind, namespace=other))


@in_dev
def test_a_member_connects_to_the_pods_of_sessions_only(environment: Environment) -> None:
    """The API server admits a connection before it looks for the pod, which is not there."""
    own, other = (team.name for team in environment.settings.teams[:2])
    member, session = environment.member(own), "session-notes-abcde-head-fghij"
    for subresource in ("exec", "portforward"):
        assert connect(member, own, session, subresource).code == 404
        refused = connect(member, own, "digits-abcde-head-fghij", subresource)
        assert refused.code == 403
        assert "whose names begin with session-" in str(refused)
        assert "cannot" in str(connect(member, other, session, subresource))


def connect(cluster: Cluster, namespace: str, pod: str, subresource: str) -> ApiError:
    """The API server's answer to a request to connect to a pod."""
    with pytest.raises(ApiError) as answer:
        cluster.read_raw(f"/api/v1/namespaces/{namespace}/pods/{pod}/{subresource}?command=true&stdout=true")
    return answer.value


@in_dev
def test_a_member_forwards_ports_of_mlflow_and_runs_nothing_there(environment: Environment) -> None:
    """Grafana, Prometheus and Alertmanager show the metrics of every team."""
    member = environment.member(environment.team)
    assert connect(member, "mlflow", "mlflow-5d8f-abcde", "portforward").code == 404
    assert member.items("v1", "Pod", namespace="mlflow") == environment.cluster.items("v1", "Pod", namespace="mlflow")
    assert connect(member, "mlflow", "mlflow-5d8f-abcde", "exec").code == 403
    for namespace in ("monitoring", "kueue-system"):
        assert connect(member, namespace, "grafana-abcde", "portforward").code == 403
        _is_forbidden(partial(member.items, "v1", "Pod", namespace=namespace))


@in_dev
def test_a_member_reads_no_secret_but_the_login_of_the_own_team(environment: Environment) -> None:
    own, other = (team.name for team in environment.settings.teams[:2])
    member = environment.member(own)
    for namespace in (own, "mlflow", "kube-system"):
        _is_forbidden(partial(member.items, "v1", "Secret", namespace=namespace))
    credentials = _object(environment, "Secret", name="mlflow-credentials")
    assert member.read(credentials) == environment.cluster.read(credentials)
    for secret in ({"name": "another", "namespace": own}, {"name": "mlflow-credentials", "namespace": other}):
        _is_forbidden(partial(member.read, {**credentials, "metadata": secret}))
    _is_forbidden(partial(member.apply, credentials, is_dry_run=True))


@in_dev
def test_the_service_account_of_jobs_has_no_rights(environment: Environment) -> None:
    account = trainer_account(environment.team)
    pod = environment.cluster.seen_by(
        f"system:serviceaccount:{account.namespace}:{account.name}", f"system:serviceaccounts:{account.namespace}"
    )
    for version, kind in (("v1", "Secret"), ("v1", "Pod"), ("ray.io/v1", "RayJob")):
        _is_forbidden(partial(pod.items, version, kind, namespace=environment.team))


def _head(environment: Environment) -> Manifest:
    head, *_ = expand(rayjob(environment, job("violateed", team=environment.team)))
    return copy.deepcopy(head)


def _object(environment: Environment, kind: str, *, name: str = "extra", **fields: object) -> Manifest:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": environment.team}, **fields}


def _is_forbidden(act: Callable[[], object]) -> None:
    with pytest.raises(ApiError, match="forbidden") as refusal:
        act()
    assert refusal.value.code == 403
