"""Allowed and denied traffic, evaluated from the network policies."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from infra.spec.release import load_release
from infra.spec.settings.logs import LogSettings
from infra.spec.settings.network import subnets_of
from platform_charts.objects.network_policies import allow_rules, markdown_table, network_policies
from tests.platform_charts.objects.samples import ENVIRONMENTS, FACTS, all_of, named, of_kind, settings_of
from tests.platform_charts.objects.traffic import End, Pod, PolicySet

SECURITY = Path(__file__).parents[3] / "docs" / "SECURITY.md"

DEV = PolicySet(of_kind(all_of("dev"), "NetworkPolicy"))
DEV_BLOCKS_OUTSIDE = PolicySet(DEV.policies, blocks_match_pods=False)

_RAY = {"ray.io/is-ray-node": "yes"}
HEAD = Pod(namespace="research", labels={**_RAY, "ray.io/node-type": "head"})
WORKER = Pod(namespace="research", labels={**_RAY, "ray.io/node-type": "worker"})
SUBMITTER = Pod(namespace="research", labels={"job-name": "digits"})
SCHEDULE = Pod(namespace="research", labels={"app.kubernetes.io/name": "schedule"})
FOREIGN_HEAD = Pod(namespace="platform", labels=HEAD.labels)
MLFLOW = Pod(namespace="mlflow", labels={"app.kubernetes.io/name": "mlflow"})
BOOTSTRAP = Pod(namespace="mlflow", labels={"app.kubernetes.io/name": "mlflow-bootstrap"})
PROMETHEUS = Pod(namespace="monitoring", labels={"app.kubernetes.io/name": "prometheus"})
ALERTMANAGER = Pod(namespace="monitoring", labels={"app.kubernetes.io/name": "alertmanager"})
GRAFANA = Pod(namespace="monitoring", labels={"app.kubernetes.io/name": "grafana"})
KUBERAY = Pod(namespace="kuberay-system")
KUEUE = Pod(namespace="kueue-system")
DCGM = Pod(namespace="gpu-system")
DATA_SYNC = Pod(namespace="data-sync", labels={"app.kubernetes.io/name": "data-sync"})
FLUENT_BIT = Pod(namespace="gpu-system", labels={"app.kubernetes.io/name": "fluent-bit"})
COREDNS = Pod(namespace="kube-system", labels={"k8s-app": "kube-dns"})
JOB_PROGRESS = Pod(namespace="monitoring", labels={"app.kubernetes.io/name": "job-progress"})
STRANGER = Pod(namespace="default")

API_SERVER, API_SERVICE = "10.16.1.7", "172.20.0.1"
NODE, DATABASE = "10.16.65.3", "10.16.64.9"
CLOUDWATCH = "52.94.233.10"
S3, IMDS, POD_IDENTITY = "52.216.8.1", "169.254.169.254", "169.254.170.23"

Traffic = tuple[tuple[End, tuple[tuple[End, int], ...]], ...]
"""Sources, and the targets and ports of each."""


ALLOWED: Traffic = (
    (WORKER, ((HEAD, 6379), (WORKER, 29500), (MLFLOW, 5000), (S3, 443), (POD_IDENTITY, 80))),
    (HEAD, ((WORKER, 41234),)),
    (SUBMITTER, ((HEAD, 8265), (COREDNS, 53))),
    (KUBERAY, ((HEAD, 8265), (API_SERVICE, 443), (API_SERVER, 443))),
    (SCHEDULE, ((API_SERVICE, 443),)),
    (MLFLOW, ((DATABASE, 5432), (S3, 443), (POD_IDENTITY, 80))),
    (BOOTSTRAP, ((DATABASE, 5432), (API_SERVICE, 443))),
    (
        PROMETHEUS,
        (
            (HEAD, 8080),
            (HEAD, 44217),
            (HEAD, 44227),
            (WORKER, 8080),
            (KUBERAY, 8080),
            (KUEUE, 8443),
            (DCGM, 9400),
            (NODE, 9100),
            (NODE, 10250),
            (COREDNS, 9153),
            (ALERTMANAGER, 9093),
            (FLUENT_BIT, 2020),
        ),
    ),
    (GRAFANA, ((PROMETHEUS, 9090),)),
    (JOB_PROGRESS, ((PROMETHEUS, 9090), (API_SERVICE, 443))),
    (ALERTMANAGER, ((S3, 443), (POD_IDENTITY, 80))),
    (KUEUE, ((API_SERVICE, 443),)),
    (DCGM, ((API_SERVICE, 443),)),
    (FLUENT_BIT, ((API_SERVICE, 443), (CLOUDWATCH, 443), (POD_IDENTITY, 80))),
    (DATA_SYNC, ((S3, 443), (POD_IDENTITY, 80), (COREDNS, 53))),
    (API_SERVER, ((KUEUE, 9443), (KUEUE, 8082), (Pod(namespace="monitoring"), 10250))),
)
DENIED: Traffic = (
    (
        WORKER,
        (
            (FOREIGN_HEAD, 6379),
            (FOREIGN_HEAD, 8265),
            (PROMETHEUS, 9090),
            (DATABASE, 5432),
            (NODE, 10250),
            (BOOTSTRAP, 5000),
            (S3, 80),
            (FLUENT_BIT, 2020),
            (DATA_SYNC, 8080),
            (FOREIGN_HEAD, 443),
            (MLFLOW, 443),
            (KUEUE, 443),
            (KUEUE, 9443),
        ),
    ),
    (FOREIGN_HEAD, ((HEAD, 10001),)),
    (SUBMITTER, ((HEAD, 6379), (WORKER, 8265))),
    (STRANGER, ((HEAD, 8265), (MLFLOW, 5000), (PROMETHEUS, 9090))),
    (KUBERAY, ((HEAD, 6379), (S3, 443))),
    (KUEUE, ((HEAD, 8265),)),
    (MLFLOW, ((HEAD, 8265), (S3, 80), (PROMETHEUS, 10250), (HEAD, 5432))),
    (GRAFANA, ((HEAD, 8080), (S3, 443))),
    (JOB_PROGRESS, ((HEAD, 8265), (S3, 443), (POD_IDENTITY, 80))),
    (API_SERVER, ((KUEUE, 8443), (HEAD, 8265))),
    (NODE, ((HEAD, 8265),)),
    (S3, ((MLFLOW, 5000),)),
    (DCGM, ((S3, 443), (POD_IDENTITY, 80))),
    (FLUENT_BIT, ((CLOUDWATCH, 3100), (HEAD, 8265))),
    (DATA_SYNC, ((MLFLOW, 5000), (API_SERVICE, 6443))),
)


def test_required_traffic_and_no_other_is_allowed_whether_or_not_blocks_match_pods() -> None:
    for traffic, is_allowed in ((ALLOWED, True), (DENIED, False)):
        for source, targets in traffic:
            for target, port in targets:
                found = (DEV.allows(source, target, port), DEV_BLOCKS_OUTSIDE.allows(source, target, port))
                assert found == (is_allowed, is_allowed), (source, target, port)


@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_between_the_platforms_namespaces_it_makes_no_difference_whether_blocks_match_pods(environment: str) -> None:
    policies = of_kind(all_of(environment), "NetworkPolicy")
    namespaces = [one["metadata"]["name"] for one in of_kind(all_of(environment), "Namespace")]
    labels = [one.labels for one in (HEAD, WORKER, SUBMITTER, MLFLOW, PROMETHEUS, ALERTMANAGER, FLUENT_BIT)]
    address = str(subnets_of(settings_of(environment).network).private[0][5])
    pods = [Pod(namespace=namespace, labels=each, address=address) for namespace in namespaces for each in labels]
    ports = {
        port["port"]
        for one in policies
        for rule in (*one["spec"].get("ingress", ()), *one["spec"].get("egress", ()))
        for port in rule.get("ports", ())
    }
    both, outside = PolicySet(policies), PolicySet(policies, blocks_match_pods=False)
    for source, target, port in product(pods, pods, ports):
        assert both.allows(source, target, port) == outside.allows(source, target, port), (source, target, port)


def test_where_blocks_match_pods_those_that_no_policy_isolates_are_in_them() -> None:
    """docs/SECURITY.md says so: the API server's addresses are in the subnets of the pods."""
    unisolated: tuple[tuple[Pod, Pod, int], ...] = (
        (STRANGER, KUEUE, 9443),
        (STRANGER, PROMETHEUS, 10250),
        (WORKER, STRANGER, 443),
        (MLFLOW, STRANGER, 5432),
    )
    for source, target, port in unisolated:
        assert DEV.allows(source, target, port)
        assert not DEV_BLOCKS_OUTSIDE.allows(source, target, port)
    # It also says why no exception can tell the API server from AWS's endpoints; job pods have no token.
    for address in (API_SERVICE, API_SERVER):
        assert DEV.allows(WORKER, address, 443)
        assert not DEV.allows(WORKER, address, 10250)


def test_every_namespace_denies_by_default_and_no_pod_can_reach_the_instance_metadata_service() -> None:
    labels = [HEAD.labels, WORKER.labels, MLFLOW.labels, PROMETHEUS.labels, ALERTMANAGER.labels, {}]
    for objects in map(all_of, ENVIRONMENTS):
        policies = PolicySet(of_kind(objects, "NetworkPolicy"))
        for name in (one["metadata"]["name"] for one in of_kind(objects, "Namespace")):
            policy = named(objects, "NetworkPolicy", "default-deny", namespace=name)
            assert policy["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
            for each, port in product(labels, (80, 443)):
                assert not policies.allows(Pod(namespace=name, labels=each), IMDS, port), name
        for one in policies.policies:
            # An empty list of peers would allow every peer, an empty list of rules none.
            if one["metadata"]["name"] != "default-deny":
                [direction] = one["spec"]["policyTypes"]
                [rule] = one["spec"][direction.lower()]
                assert rule["to" if direction == "Egress" else "from"]


def test_dns_is_allowed_over_udp() -> None:
    assert DEV.allows(WORKER, COREDNS, 53, "UDP")
    assert not DEV.allows(WORKER, MLFLOW, 5000, "UDP")


def test_the_security_document_has_the_table_of_prod_with_a_row_for_every_rule() -> None:
    table = allow_rules(settings_of("prod"), database_port=5432, api_server_cidrs=FACTS.api_server_cidrs)
    text = markdown_table(table)
    assert len(text.splitlines()) == 2 + len(table)
    assert "| database | mlflow | private subnets | 5432 | MLflow's PostgreSQL |" in text.splitlines()
    assert text in SECURITY.read_text(encoding="utf-8")


def test_the_log_shipper_reaches_loki_at_its_port_and_no_aws_service() -> None:
    logs = LogSettings(destination="loki", loki_url="http://loki.example:3100")
    settings = settings_of("dev").model_copy(update={"logs": logs})
    table = allow_rules(settings, database_port=5432, api_server_cidrs=FACTS.api_server_cidrs)
    policies = PolicySet(network_policies(settings, load_release(), table))
    assert policies.allows(FLUENT_BIT, "10.20.0.5", 3100)
    assert not policies.allows(FLUENT_BIT, CLOUDWATCH, 443)
    assert not policies.allows(FLUENT_BIT, POD_IDENTITY, 80)
