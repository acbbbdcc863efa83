"""The objects of single sign-on: what the proxy is told, what the load balancer does, and who may connect to whom."""

from __future__ import annotations

import json
from typing import Any

from infra.policy import evaluate
from infra.policy.graph import graph_from_recording
from infra.preview.recording import record
from infra.spec.manifest import Manifest
from infra.spec.names import MLFLOW_URI
from infra.spec.uis import GRAFANA_URI
from platform_charts.images.sso_proxy.__main__ import parser
from platform_charts.images.sso_proxy.proxy import HEALTH_PATH
from platform_charts.images.sso_proxy.sites import Site
from platform_charts.objects.phases import platform_objects
from tests.platform_charts.objects.samples import ENVIRONMENTS, FACTS, RELEASE, all_of, named, of_kind
from tests.platform_charts.objects.sso_samples import with_single_sign_on
from tests.platform_charts.objects.traffic import Pod, PolicySet

PROXY = Pod(namespace="sso", labels={"app.kubernetes.io/name": "sso-proxy"})
GRAFANA = Pod(namespace="monitoring", labels={"app.kubernetes.io/name": "grafana"})
PROMETHEUS = Pod(namespace="monitoring", labels={"app.kubernetes.io/name": "prometheus"})
ALERTMANAGER = Pod(namespace="monitoring", labels={"app.kubernetes.io/name": "alertmanager"})
MLFLOW = Pod(namespace="mlflow", labels={"app.kubernetes.io/name": "mlflow"})
HEAD = Pod(namespace="research", labels={"ray.io/is-ray-node": "yes", "ray.io/node-type": "head"})
PRIVATE, PUBLIC, OUTSIDE, API_SERVICE = "10.16.1.7", "10.16.192.9", "52.216.8.1", "172.20.0.1"


def objects(**changes: object) -> tuple[Manifest, ...]:
    """Every object of dev with single sign-on."""
    phases = platform_objects(with_single_sign_on(**changes), RELEASE, FACTS)
    return tuple(one for phase in phases.values() for one in phase)


def annotations_of(**changes: object) -> dict[str, str]:
    """Annotations of the Ingress for the controller, without their prefix."""
    found = named(objects(**changes), "Ingress", "sso-proxy")["metadata"]["annotations"]
    prefix = "alb.ingress.kubernetes.io/"
    return {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def test_the_shipped_environments_have_none_of_it() -> None:
    for found in map(all_of, ENVIRONMENTS):
        assert of_kind(found, "Ingress") == []
        assert [one for one in found if "sso" in (one["metadata"]["name"], one["metadata"].get("namespace"))] == []
        assert [one for one in found if "grafana-viewer" in one["metadata"]["name"]] == []


def test_the_proxy_is_told_the_sites_of_the_teams_and_whom_to_trust() -> None:
    deployment = named(objects(), "Deployment", "sso-proxy")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    options = parser().parse_args(container["args"])
    assert options.signer == "arn:aws:elasticloadbalancing:us-east-1:111122223333:loadbalancer/app/rtp-dev-sso/"
    assert options.keys == "https://public-keys.auth.elb.us-east-1.amazonaws.com"
    assert (options.issuer, options.client_id) == ("https://idp.example.com", "ray-train-platform")
    everybody = frozenset({"ml-research", "ml-platform", "ml-leads"})
    grafana = Site(host="grafana.ml.example.com", title="Grafana", upstream=GRAFANA_URI, groups=everybody, team=None)
    research = Site(
        host="mlflow-research.ml.example.com",
        title="MLflow of team research",
        upstream=MLFLOW_URI,
        groups=frozenset({"ml-research", "ml-leads"}),
        team="research",
    )
    assert options.site[:2] == [grafana, research]
    probes = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("readiness", "liveness")}
    assert probes == {HEALTH_PATH, annotations_of()["healthcheck-path"]}


def test_the_load_balancer_signs_people_in_and_the_ingress_refers_to_the_clients_secret() -> None:
    found = annotations_of()
    provider: dict[str, Any] = json.loads(found["auth-idp-oidc"])
    assert provider == {
        "issuer": "https://idp.example.com",
        "authorizationEndpoint": "https://idp.example.com/authorize",
        "tokenEndpoint": "https://idp.example.com/token",
        "userInfoEndpoint": "https://idp.example.com/userinfo",
        "secretName": "oidc-client",
    }
    assert (found["auth-type"], found["auth-on-unauthenticated-request"]) == ("oidc", "authenticate")
    assert (found["auth-scope"], found["auth-session-timeout"]) == ("openid email profile", "28800")
    assert json.loads(found["listen-ports"]) == [{"HTTPS": 443}]
    assert (found["scheme"], found["inbound-cidrs"]) == ("internal", "10.16.0.0/16")
    assert of_kind(objects(), "Secret") == []
    spec = named(objects(), "Ingress", "sso-proxy")["spec"]
    assert spec["ingressClassName"] == "alb"
    hosts = ["grafana.ml.example.com", "mlflow-research.ml.example.com", "mlflow-platform.ml.example.com"]
    assert [one["host"] for one in spec["rules"]] == hosts
    backends = [path["backend"]["service"]["name"] for one in spec["rules"] for path in one["http"]["paths"]]
    assert set(backends) == {"sso-proxy"}


def test_the_proxy_answers_the_subnets_of_the_load_balancer() -> None:
    for is_public, reached, not_reached in ((False, PRIVATE, PUBLIC), (True, PUBLIC, PRIVATE)):
        found = objects(internet_facing=is_public, client_cidrs=["10.16.0.0/16"])
        policies = PolicySet(of_kind(found, "NetworkPolicy"))
        assert policies.allows(reached, PROXY, 8080)
        for source, port in ((not_reached, 8080), (OUTSIDE, 8080), (reached, 443)):
            assert not policies.allows(source, PROXY, port), (is_public, source)


def test_the_proxy_reaches_mlflow_and_grafana_and_nothing_else_of_the_platform() -> None:
    policies = PolicySet(of_kind(objects(), "NetworkPolicy"))
    for target, port in ((MLFLOW, 5000), (GRAFANA, 3000), (API_SERVICE, 443), (OUTSIDE, 443)):
        assert policies.allows(PROXY, target, port)
    for target, port in ((PROMETHEUS, 9090), (ALERTMANAGER, 9093), (HEAD, 8265), (GRAFANA, 9090), (PRIVATE, 5432)):
        assert not policies.allows(PROXY, target, port)
    # Nobody reaches the UIs past it.
    for target, port in ((MLFLOW, 5000), (GRAFANA, 3000)):
        assert not policies.allows(PRIVATE, target, port)
        assert not policies.allows(HEAD, PROXY, 8080)


def test_the_program_registers_the_proxy_with_the_account_of_the_stack_and_complies_with_every_rule() -> None:
    recording = record(with_single_sign_on())
    deployment = recording.find("kubernetes:apps/v1:Deployment", "deployment-sso-sso-proxy")
    (container,) = deployment.properties["spec"]["template"]["spec"]["containers"]
    (signer,) = [one for one in container["args"] if one.startswith("--signer=")]
    account = recording.outputs["account"]
    assert signer.endswith(f":{account}:loadbalancer/app/rtp-dev-sso/")
    assert [str(one) for one in evaluate(graph_from_recording(recording))] == []
