"""PodMonitors as Prometheus's configuration, and pods as its targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.lifecycle.sandbox.services.monitors import scrape_configs, unsupported
from infra.lifecycle.sandbox.services.prometheus import configuration
from infra.lifecycle.sandbox.services.targets import pod_targets
from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from infra.spec.settings import load_environment
from platform_charts.objects.monitoring import monitors
from tests.engines.promtool import promtool

pytestmark = pytest.mark.monitoring


def monitor(*endpoints: Manifest, **spec: Any) -> Manifest:  # noqa: ANN401 - fields of a PodMonitorSpec
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "podMetricsEndpoints": list(endpoints), **spec},
    }


def rules(found: Manifest) -> list[Manifest]:
    (config,) = scrape_configs([found], targets="targets.json")
    relabelings: list[Manifest] = config["relabel_configs"]
    return relabelings


def test_prometheus_accepts_the_configuration_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "prometheus.yml"
    file.write_text(configuration(monitors(load_environment("dev"), load_release()), targets=tmp_path / "targets.json"))
    assert promtool("check", "config", file, folder=tmp_path) == ""
    jobs = [config["job_name"] for config in yaml.safe_load(file.read_text())["scrape_configs"]]
    found = ("heads/0", "heads/1", "heads/2", "workers/0")
    assert jobs == [f"podMonitor/monitoring/ray-{one}" for one in found]


def test_a_monitor_selects_the_pods_of_its_own_namespace_unless_it_names_others() -> None:
    own = {"source_labels": ["__meta_kubernetes_namespace"], "regex": "shop", "action": "keep"}
    assert rules(monitor({"port": "http"}))[0] == own
    named = monitor({"port": "http"}, namespaceSelector={"matchNames": ["a", "b"]})
    assert rules(named)[0] == {**own, "regex": "a|b"}
    assert all(
        rule["source_labels"] != own["source_labels"]
        for rule in rules(monitor({"port": "http"}, namespaceSelector={"any": True}))
        if rule.get("action") == "keep"
    )


def test_every_operator_of_a_selector_is_a_rule() -> None:
    sources = ["__meta_kubernetes_pod_label_x_y_z", "__meta_kubernetes_pod_labelpresent_x_y_z"]
    for operator, regex, action in (
        ("In", "(a|b);true", "keep"),
        ("NotIn", "(a|b);true", "drop"),
        ("Exists", "true", "keep"),
        ("DoesNotExist", "true", "drop"),
    ):
        values = {"values": ["a", "b"]} if "In" in operator else {}
        found = rules(monitor({}, selector={"matchExpressions": [{"key": "x.y/z", "operator": operator, **values}]}))
        labels = sources if values else sources[1:]
        assert {"source_labels": labels, "regex": regex, "action": action} in found, operator


def test_a_short_interval_shortens_the_time_out_which_prometheus_would_refuse_otherwise() -> None:
    (config,) = scrape_configs([monitor({"port": "http", "interval": "500ms"})], targets="targets.json")
    assert config["scrape_timeout"] == "500ms"


def test_a_monitor_with_credentials_is_left_out_and_says_why() -> None:
    found = monitor(
        {"port": "http", "basicAuth": {"username": {"name": "x", "key": "y"}}}, attachMetadata={"node": True}
    )
    assert unsupported(found) == ("attachMetadata", "basicAuth")
    assert yaml.safe_load(configuration([found], targets=Path("targets.json")))["scrape_configs"] == []


def test_each_port_of_a_pod_is_a_target_with_the_labels_of_the_pod() -> None:
    pod = {
        "metadata": {"name": "one", "namespace": "shop", "uid": "1", "labels": {"ray.io/cluster": "x"}},
        "spec": {
            "nodeName": "system-0",
            "containers": [
                {"name": "main", "image": "i", "ports": [{"name": "http", "containerPort": 80}, {"containerPort": 81}]},
                {"name": "side", "image": "j"},
            ],
        },
        "status": {"podIP": "10.0.0.1", "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    pending = {**pod, "status": {"phase": "Pending"}}
    found = pod_targets([pod, pending])
    assert [target["targets"] for target in found] == [["10.0.0.1:80"], ["10.0.0.1:81"], ["10.0.0.1"]]
    labels = found[0]["labels"]
    assert labels["__meta_kubernetes_pod_label_ray_io_cluster"] == "x"
    assert labels["__meta_kubernetes_pod_container_port_name"] == "http"
    assert labels["__meta_kubernetes_pod_ready"] == "true"
    assert json.dumps(found)
