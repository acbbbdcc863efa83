"""Where `infra.spec.uis` finds Grafana, Prometheus and Alertmanager is where the chart puts them."""

from __future__ import annotations

from infra.spec.uis import GRAFANA, GRAFANA_LOGIN, GRAFANA_URI, SHARED_UIS
from tests.platform_charts.charts.rendering import rendered

_CHART, _ENVIRONMENT = "kube-prometheus-stack", "prod"
_NAMED = {"grafana": 3000}
"""The port that Grafana's Service names; the others have numbers."""


def test_a_service_of_the_chart_selects_the_pods_by_the_same_labels_and_reaches_the_port() -> None:
    services = [one for one in rendered(_CHART, _ENVIRONMENT) if one["kind"] == "Service"]
    for name in ("grafana", "prometheus", "alertmanager"):
        ui = SHARED_UIS[name]
        targets = {
            _NAMED.get(str(port["targetPort"]), port["targetPort"])
            for one in services
            if ui.labels.items() <= (one["spec"].get("selector") or {}).items()
            for port in one["spec"]["ports"]
        }
        assert ui.port in targets, name


def test_the_chart_makes_grafanas_login_and_names_its_service_and_pods_as_the_proxy_and_the_policy_do() -> None:
    made = {(one["kind"], one["metadata"]["name"]): one for one in rendered(_CHART, _ENVIRONMENT)}
    assert {GRAFANA_LOGIN.user, GRAFANA_LOGIN.password} <= made["Secret", GRAFANA_LOGIN.secret]["data"].keys()
    ports = made["Service", GRAFANA]["spec"]["ports"]
    assert f"http://{GRAFANA}.monitoring.svc:{ports[0]['port']}" == GRAFANA_URI
    pod = made["Deployment", GRAFANA]["spec"]["template"]
    assert SHARED_UIS["grafana"].labels.items() <= pod["metadata"]["labels"].items()
