"""Asks the stack's Prometheus: through a forwarded port, or at an address that the caller names."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import URLError

from infra.spec.cluster_names import MONITORING_NAMESPACE
from infra.spec.errors import NoAnswerError, PlatformError
from infra.spec.manifest import Manifest, api_object
from training.cluster.conformance.judges.monitoring import AlertFacts, RuleGroup
from training.cluster.port_forward import port_forward
from training.cluster.uis.shared import shared_ui
from training.cluster.uis.ui import Stack
from training.local_port import local_port

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_SERVICE = "kube-prometheus-stack-prometheus"
_SLICES = f"kubernetes.io/service-name={_SERVICE}"
_SECONDS = 30
_POLL_SECONDS = 1.0
_STEPS = 'max by (training_job) (max_over_time(ray_rtp_train_step{{training_job="{job}"}}[1h]))'

WATCHDOG = "Watchdog"
"""Alert of kube-prometheus-stack that always fires (group general.rules); Prometheus sends it again every minute."""

_NOTIFICATIONS = "sum(increase(prometheus_notifications_{what}_total[15m]))"
"""Prometheus's metrics of itself, which the chart has it scrape. `sent` counts those that were taken (notifier/sendloop.go); before
Prometheus 3 also those that failed."""


class Prometheus:
    """A server that answers queries."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def rule_groups(self) -> tuple[RuleGroup, ...]:
        """The groups of rules that it evaluates.

        Raises:
            NoAnswerError: it does not answer.
        """
        return tuple(
            RuleGroup(
                name=group["name"],
                rules=frozenset(rule["name"] for rule in group["rules"]),
                errors={
                    rule["name"]: rule.get("lastError") or rule["health"]
                    for rule in group["rules"]
                    if rule["health"] == "err"
                },
            )
            for group in self._ask("rules")["groups"]
        )

    def alerting(self) -> AlertFacts:
        """How alerts leave it.

        Raises:
            NoAnswerError: it does not answer.
        """
        sent, failed = (self._sum(_NOTIFICATIONS.format(what=what)) for what in ("sent", "errors"))
        return AlertFacts(
            alertmanagers=len(self._ask("alertmanagers")["activeAlertmanagers"]),
            is_firing=any(
                one["labels"].get("alertname") == WATCHDOG and one["state"] == "firing"
                for one in self._ask("alerts")["alerts"]
            ),
            sent=sent,
            failed=failed or 0.0,
        )

    def _sum(self, query: str) -> float | None:
        """The value of a query for one number; None without a series."""
        found = self._ask("query", query=query)["result"]
        return float(found[0]["value"][1]) if found else None

    def steps(self, job: str, *, wait_seconds: float = 0.0) -> dict[str, float]:
        """The newest step of a job in the last hour, by its name; empty without such a series.

        Args:
            job: its name.
            wait_seconds: for which it may still be scraped.

        Raises:
            NoAnswerError: it does not answer.
        """
        deadline = time.monotonic() + wait_seconds
        while not (found := self._ask("query", query=_STEPS.format(job=job))["result"]) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return {one["metric"]["training_job"]: float(one["value"][1]) for one in found}

    def _ask(self, path: str, **parameters: str) -> Any:  # noqa: ANN401 - JSON
        address = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=_SECONDS) as answer:  # noqa: S310 - a URL of the caller's
                return json.load(answer)["data"]
        except (URLError, OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            raise NoAnswerError(f"Prometheus at {self._url} does not answer: {error}") from error


@contextmanager
def reached(stack: Stack, *, url: str | None) -> Iterator[Prometheus]:
    """The stack's Prometheus while the context is open.

    Args:
        stack: the stack.
        url: where it answers; None finds out, and forwards a port of its pod.

    Raises:
        PlatformError: it does not run, or the caller may not reach it; names the role.
        NoAnswerError: its port cannot be forwarded.
    """
    url = url or stand_in(stack.api)
    if url is not None:
        yield Prometheus(url)
        return
    ui = shared_ui("prometheus", stack, team=None)
    port = local_port(0, usual=0)
    command = ui.kubectl.command("port-forward", "--address=127.0.0.1", f"pod/{ui.find_pod()}", f"{port}:{ui.port}")
    local = f"http://127.0.0.1:{port}"
    with port_forward(command, url=f"{local}{ui.health}") as forward:
        try:
            forward.await_open()
        except ConnectionError as error:
            raise PlatformError(f"Prometheus of {stack.env}: {error}") from error
        yield Prometheus(local)


def stand_in(api: KubernetesApi) -> str | None:
    """Where a sandbox's own Prometheus answers, which has the chart's name and is no pod; None on any other cluster."""
    service = api.read(api_object("v1", "Service", _SERVICE, namespace=MONITORING_NAMESPACE))
    if service is None or service["spec"].get("selector"):
        return None
    slices = api.items("discovery.k8s.io/v1", "EndpointSlice", namespace=MONITORING_NAMESPACE, labels=_SLICES)
    places = [(address, port["port"]) for one in slices for address in _addresses(one) for port in one["ports"]]
    return f"http://{places[0][0]}:{places[0][1]}" if places else None


def _addresses(found: Manifest) -> list[str]:
    return [str(address) for endpoint in found.get("endpoints") or () for address in endpoint["addresses"]]
