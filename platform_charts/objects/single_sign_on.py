"""Single sign-on: a load balancer that signs people in, and behind it the proxy that lets them into the UIs of their teams.

The load balancer is made from the Ingress by the AWS Load Balancer Controller, which the stack does not install: it may make
and change load balancers and security groups of the whole account, and one of them serves every application of a cluster.
The controller reads the client's secret from a Secret that an administrator creates, so it is in no setting and no state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.spec.cluster_names import SSO_CLIENT_SECRET, SSO_NAMESPACE
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, SKIP_AWAIT, Manifest, api_object, labels
from infra.spec.names import MLFLOW_URI, name_prefix, node_tags
from infra.spec.release import ReleaseManifest
from infra.spec.settings.single_sign_on import GRAFANA_LABEL, SingleSignOnSettings, mlflow_label
from infra.spec.settings.stack import StackSettings
from infra.spec.uis import GRAFANA_URI, MLFLOW_LOGIN
from platform_charts.container_resources import CONTAINERS
from platform_charts.objects.access import role, rule
from platform_charts.placement import SYSTEM_NODES

PORT = 8080
_NAME = "sso-proxy"
_HEALTH_PATH = "/.sso/health"
_ANNOTATION = "alb.ingress.kubernetes.io"
_TLS_POLICY = "ELBSecurityPolicy-TLS13-1-2-2021-06"
"""TLS 1.2 and 1.3 with forward secrecy (Elastic Load Balancing, "Security policies")."""

_ATTRIBUTES = {
    "routing.http.drop_invalid_header_fields.enabled": "true",
    # Longer than a query of Grafana, shorter than the proxy's patience with a UI.
    "idle_timeout.timeout_seconds": "240",
}

_DRAIN_SECONDS = 15
"""Time for which a pod that is to end still serves: the controller takes it out of the load balancer meanwhile."""

_GRACE_SECONDS = 60


def single_sign_on_objects(
    settings: StackSettings, release: ReleaseManifest, *, registry: str, account: str
) -> tuple[Manifest, ...]:
    """The proxy with what it may read, and its Ingress; nothing where `single_sign_on` is not set.

    Args:
        settings: the environment.
        release: the versions.
        registry: host of the stack's ECR and the prefix of its repositories.
        account: AWS account of the load balancer.
    """
    found = settings.single_sign_on
    if found is None:
        return ()
    common = labels(_NAME, version=release.platform)
    pods = {"app.kubernetes.io/name": _NAME}
    ports = [{"name": "http", "port": PORT, "targetPort": PORT, "protocol": "TCP"}]
    deployment = _deployment(settings, found, release, registry=registry, account=account)
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": pods}}

    # Until the controller and the client's Secret are there, it has no address.
    annotations = {**SKIP_AWAIT, **_annotations(settings, found)}

    def made(api_version: str, kind: str, **fields: Any) -> Manifest:  # noqa: ANN401 - fields of any object
        return api_object(api_version, kind, _NAME, namespace=SSO_NAMESPACE, labels=common, **fields)

    return (
        made("v1", "ServiceAccount"),
        *_login_roles(found, release),
        made("apps/v1", "Deployment", spec=deployment),
        made("policy/v1", "PodDisruptionBudget", spec=budget),
        made("v1", "Service", spec={"selector": pods, "ports": ports}),
        made("networking.k8s.io/v1", "Ingress", annotations=annotations, spec=_ingress(found)),
    )


def host_names(found: SingleSignOnSettings) -> tuple[str, ...]:
    """Host names of the UIs: Grafana's, and one for the MLflow of each team."""
    names = (GRAFANA_LABEL, *(mlflow_label(team) for team in found.groups))
    return tuple(f"{name}.{found.domain}" for name in names)


def load_balancer_name(settings: StackSettings) -> str:
    """Name of the load balancer, by which the proxy knows its tokens; unique in the account and region."""
    return f"{name_prefix(settings)}-sso"


def _login_roles(found: SingleSignOnSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """The proxy reads the logins of the teams that it serves, and no other Secret."""
    subject = {"kind": "ServiceAccount", "name": _NAME, "namespace": SSO_NAMESPACE}
    read = rule("", ("secrets",), ("get",), only=(MLFLOW_LOGIN.secret,))
    return tuple(
        manifest
        for team in found.groups
        for manifest in role(_NAME, team, (read,), subject, labels=labels(_NAME, version=release.platform, team=team))
    )


def _sites(found: SingleSignOnSettings) -> tuple[Mapping[str, object], ...]:
    """What the proxy serves: Grafana to the members of all teams, and to those of a team its MLflow."""
    everybody = list(dict.fromkeys(group for groups in found.groups.values() for group in groups))
    grafana = {
        "host": f"{GRAFANA_LABEL}.{found.domain}",
        "title": "Grafana",
        "upstream": GRAFANA_URI,
        "groups": everybody,
        "team": None,
    }
    teams = (
        {
            "host": f"{mlflow_label(team)}.{found.domain}",
            "title": f"MLflow of team {team}",
            "upstream": MLFLOW_URI,
            "groups": list(groups),
            "team": team,
        }
        for team, groups in found.groups.items()
    )
    return (grafana, *teams)


def _deployment(
    settings: StackSettings, found: SingleSignOnSettings, release: ReleaseManifest, *, registry: str, account: str
) -> Manifest:
    probe = {"httpGet": {"path": _HEALTH_PATH, "port": "http"}}
    container = {
        "name": _NAME,
        "image": release.images["mlflow"].reference(registry),
        "command": ["python", "-m", "sso_proxy"],
        "args": _arguments(settings, found, account=account),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "readinessProbe": {**probe, "periodSeconds": 5},
        "livenessProbe": {**probe, "periodSeconds": 20, "timeoutSeconds": 5},
        "lifecycle": {"preStop": {"sleep": {"seconds": _DRAIN_SECONDS}}},
        "resources": CONTAINERS[_NAME].manifest(),
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
    }
    spread = {
        "topologyKey": "topology.kubernetes.io/zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": _NAME}},
    }
    pod = {
        "serviceAccountName": _NAME,
        "nodeSelector": dict(SYSTEM_NODES),
        "securityContext": dict(RESTRICTED_POD),
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "topologySpreadConstraints": [spread],
        "containers": [container],
    }
    return {
        "replicas": 2,
        "selector": {"matchLabels": {"app.kubernetes.io/name": _NAME}},
        "template": {"metadata": {"labels": labels(_NAME, version=release.platform)}, "spec": pod},
    }


def _arguments(settings: StackSettings, found: SingleSignOnSettings, *, account: str) -> list[str]:
    """The proxy's command line."""
    region = settings.aws.region
    signer = f"arn:aws:elasticloadbalancing:{region}:{account}:loadbalancer/app/{load_balancer_name(settings)}/"
    return [
        f"--signer={signer}",
        # Elastic Load Balancing, "User claims encoding and signature verification".
        f"--keys=https://public-keys.auth.elb.{region}.amazonaws.com",
        f"--issuer={found.issuer}",
        f"--client-id={found.client_id}",
        f"--groups-claim={found.groups_claim}",
        f"--secret={MLFLOW_LOGIN.secret}",
        f"--user-key={MLFLOW_LOGIN.user}",
        f"--password-key={MLFLOW_LOGIN.password}",
        *(f"--site={json.dumps(site)}" for site in _sites(found)),
        f"--port={PORT}",
    ]


def _ingress(found: SingleSignOnSettings) -> Manifest:
    backend = {"service": {"name": _NAME, "port": {"name": "http"}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    return {
        "ingressClassName": "alb",
        "rules": [{"host": host, "http": {"paths": paths}} for host in host_names(found)],
    }


def _annotations(settings: StackSettings, found: SingleSignOnSettings) -> dict[str, str]:
    """What the controller makes of the Ingress (AWS Load Balancer Controller, "Ingress annotations")."""
    provider = {
        "issuer": found.issuer,
        "authorizationEndpoint": found.authorization_endpoint,
        "tokenEndpoint": found.token_endpoint,
        "userInfoEndpoint": found.user_info_endpoint,
        "secretName": SSO_CLIENT_SECRET,
    }
    values = {
        "load-balancer-name": load_balancer_name(settings),
        "scheme": "internet-facing" if found.internet_facing else "internal",
        "inbound-cidrs": ",".join(map(str, found.client_cidrs)),
        "listen-ports": json.dumps([{"HTTPS": 443}]),
        "certificate-arn": found.certificate_arn,
        "ssl-policy": _TLS_POLICY,
        "auth-type": "oidc",
        "auth-idp-oidc": json.dumps(provider),
        "auth-scope": " ".join(found.scopes),
        "auth-session-timeout": str(found.session_hours * 3600),
        "auth-on-unauthenticated-request": "authenticate",
        "target-type": "ip",
        "healthcheck-path": _HEALTH_PATH,
        "load-balancer-attributes": ",".join(f"{key}={value}" for key, value in _ATTRIBUTES.items()),
        "tags": ",".join(f"{key}={value}" for key, value in node_tags(settings).items()),
    }
    return {f"{_ANNOTATION}/{name}": value for name, value in values.items()}
