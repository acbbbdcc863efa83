"""PodMonitors as Prometheus's configuration, in place of the Prometheus Operator, which a sandbox does not run.

Labels and the order of rules are those of the operator (`pkg/prometheus/promcfg.go`), so queries find the same series as on a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from infra.lifecycle.sandbox.services.targets import meta_name
from infra.spec.manifest import Manifest

_TIMEOUT_SECONDS = 10
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}

_COPIED = {
    "interval": "scrape_interval",
    "scrapeTimeout": "scrape_timeout",
    "path": "metrics_path",
    "params": "params",
    "honorLabels": "honor_labels",
    "honorTimestamps": "honor_timestamps",
}
_TRANSLATED = {"port", "portNumber", "relabelings", "metricRelabelings", "filterRunning", "scheme"}
_OF_SPEC = {"namespaceSelector", "selector", "podMetricsEndpoints", "jobLabel", "podTargetLabels", "sampleLimit"}
_ABSENT: tuple[object, ...] = ({}, [], "", None, False)

_Rule = dict[str, Any]


def unsupported(monitor: Manifest) -> tuple[str, ...]:
    """Fields of a monitor that are not translated, such as credentials; such a monitor is left out."""
    spec = monitor["spec"]
    found = [name for name, value in spec.items() if name not in _OF_SPEC and value not in _ABSENT]
    for endpoint in spec.get("podMetricsEndpoints", []):
        known = {*_COPIED, *_TRANSLATED}
        found += [name for name, value in endpoint.items() if name not in known and value not in _ABSENT]
    return tuple(dict.fromkeys(found))


def scrape_configs(monitors: Iterable[Manifest], *, targets: str) -> list[Manifest]:
    """Entries of `scrape_configs`, one for each endpoint of each monitor.

    Args:
        monitors: PodMonitors without unsupported fields.
        targets: file with the ports of all pods, see `targets.pod_targets`.
    """
    return [
        _scrape_config(monitor, endpoint, number, targets=targets)
        for monitor in monitors
        for number, endpoint in enumerate(monitor["spec"].get("podMetricsEndpoints", []))
    ]


def _scrape_config(monitor: Manifest, endpoint: Mapping[str, Any], number: int, *, targets: str) -> Manifest:
    spec, metadata = monitor["spec"], monitor["metadata"]
    config: Manifest = {
        "job_name": f"podMonitor/{metadata['namespace']}/{metadata['name']}/{number}",
        "file_sd_configs": [{"files": [targets]}],
        **{ours: endpoint[theirs] for theirs, ours in _COPIED.items() if theirs in endpoint},
        "relabel_configs": [
            *_namespaces(spec.get("namespaceSelector", {}), own=metadata["namespace"]),
            {"source_labels": ["job"], "target_label": "__tmp_prometheus_job_name"},
            *_selection(spec.get("selector", {})),
            *_port(endpoint),
            *_running(endpoint),
            *_identity(monitor, endpoint),
            *map(_relabeling, endpoint.get("relabelings", [])),
        ],
    }
    if endpoint.get("scheme"):
        config["scheme"] = endpoint["scheme"].lower()
    if spec.get("sampleLimit"):
        config["sample_limit"] = spec["sampleLimit"]
    if endpoint.get("metricRelabelings"):
        config["metric_relabel_configs"] = [_relabeling(rule) for rule in endpoint["metricRelabelings"]]
    return _with_timeout(config)


def _with_timeout(config: Manifest) -> Manifest:
    """Prometheus refuses a time-out above the interval, and its default is 10 s."""
    interval = config.get("scrape_interval")
    if interval is None or "scrape_timeout" in config or _seconds(interval) >= _TIMEOUT_SECONDS:
        return config
    return {**config, "scrape_timeout": interval}


def _seconds(duration: str) -> float:
    return sum(int(amount) * _UNITS[unit] for amount, unit in re.findall(r"(\d+)(ms|[smhdwy])", duration))


def _namespaces(selector: Mapping[str, Any], *, own: str) -> Iterator[_Rule]:
    """The operator restricts the discovery itself, which here is the same for all monitors."""
    if not selector.get("any"):
        names = selector.get("matchNames") or [own]
        yield {"source_labels": ["__meta_kubernetes_namespace"], "regex": "|".join(names), "action": "keep"}


def _selection(selector: Mapping[str, Any]) -> Iterator[_Rule]:
    for label, value in sorted(selector.get("matchLabels", {}).items()):
        yield {"source_labels": _label(label), "regex": f"({value});true", "action": "keep"}
    for expression in selector.get("matchExpressions", []):
        sources, values = _label(expression["key"]), "|".join(expression.get("values", []))
        yield {
            "In": {"source_labels": sources, "regex": f"({values});true", "action": "keep"},
            "NotIn": {"source_labels": sources, "regex": f"({values});true", "action": "drop"},
            "Exists": {"source_labels": sources[1:], "regex": "true", "action": "keep"},
            "DoesNotExist": {"source_labels": sources[1:], "regex": "true", "action": "drop"},
        }[expression["operator"]]


def _label(label: str) -> list[str]:
    """Prometheus's meta labels with the value and the presence of a pod's label."""
    return [f"__meta_kubernetes_pod_{kind}_{meta_name(label)}" for kind in ("label", "labelpresent")]


def _port(endpoint: Mapping[str, Any]) -> Iterator[_Rule]:
    for field, kind in (("port", "name"), ("portNumber", "number")):
        if endpoint.get(field):
            source = f"__meta_kubernetes_pod_container_port_{kind}"
            yield {"source_labels": [source], "regex": str(endpoint[field]), "action": "keep"}
            return


def _running(endpoint: Mapping[str, Any]) -> Iterator[_Rule]:
    if endpoint.get("filterRunning", True):
        yield {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)", "action": "drop"}


def _identity(monitor: Manifest, endpoint: Mapping[str, Any]) -> Iterator[_Rule]:
    """Where a series comes from, and the labels `job` and `endpoint`."""
    spec, metadata = monitor["spec"], monitor["metadata"]
    for source, target in (("namespace", "namespace"), ("pod_container_name", "container"), ("pod_name", "pod")):
        yield {"source_labels": [f"__meta_kubernetes_{source}"], "target_label": target}
    for label in spec.get("podTargetLabels", []):
        yield _copying(label, meta_name(label))
    yield {"target_label": "job", "replacement": f"{metadata['namespace']}/{metadata['name']}"}
    if spec.get("jobLabel"):
        yield _copying(spec["jobLabel"], "job")
    port = endpoint.get("port") or endpoint.get("portNumber")
    if port:
        yield {"target_label": "endpoint", "replacement": str(port)}


def _copying(label: str, target: str) -> _Rule:
    return {"source_labels": _label(label)[:1], "target_label": target, "regex": "(.+)", "replacement": "${1}"}


def _relabeling(rule: Mapping[str, Any]) -> _Rule:
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {names.get(key, key): value.lower() if key == "action" else value for key, value in rule.items()}
