"""Where `infra.spec.uis` finds Grafana, Prometheus and Alertmanager is where the chart puts them."""

from __future__ import annotations

import pytest

from infra.spec.uis import GRAFANA, GRAFANA_LOGIN, GRAFANA_URI, SHARED_UIS
from tests.platform_charts.charts.rendering import rendered

_CHART, _ENVIRONMENT = "kube-prometheus-stack", "prod"
_NAMED = {"grafana": 3000}
"""The port that Grafana's Service names; the others have numbers."""


@pytest.mark.parametrize("name", ["grafana", "prometheus", "alertmanager"])
def test_a_service_of_the_chart_selects_the_pods_by_the_same_labels_and_reaches_the_port(name: str) -> None:
    ui = SHARED_UIS[name]
    targets = {
        _NAMED.get(str(port["targetPort"]), port["targetPort"])
        for one in rendered(_CHART, _ENVIRONMENT)
        if one["kind"] == "Service" and ui.labels.items() <= (one["spec"].get("selector") or {}).items()
        for port in one["spec"]["ports"]
    }
    assert ui.port in targets


def test_the_chart_makes_the_login_of_grafana() -> None:
    secrets = {
        one["metadata"]["name"]: one["data"] for one in rendered(_CHART, _ENVIRONMENT) if one["kind"] == "Secret"
    }
    assert {GRAFANA_LOGIN.user, GRAFANA_LOGIN.password} <= secrets[GRAFANA_LOGIN.secret].keys()


def test_the_chart_names_grafanas_service_and_pods_as_the_proxy_and_the_policy_do() -> None:
    made = {(one["kind"], one["metadata"]["name"]): one for one in rendered(_CHART, _ENVIRONMENT)}
    ports = made["Service", GRAFANA]["spec"]["ports"]
    assert f"http://{GRAFANA}.monitoring.svc:{ports[0]['port']}" == GRAFANA_URI
    assert (
        SHARED_UIS["grafana"].labels.items()
        <= made["Deployment", GRAFANA]["spec"]["template"]["metadata"]["labels"].items()
    )
