"""What becomes of an alert: Alertmanager's configuration, and how it comes by the webhook's URL.

Nothing in it is secret. The URL of a webhook is a password; an init container takes it out of Secrets Manager, by the
role that Pod Identity gives Alertmanager, into memory of the pod, from where Alertmanager reads it at each notification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired, TypedDict

from infra.spec.manifest import RESTRICTED_CONTAINER, Manifest
from infra.spec.names import cluster_name
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.placement import resources

PEOPLE, NOBODY = "people", "nobody"

_WEBHOOK_FOLDER = "/run/alert-webhook"
WEBHOOK_FILE = f"{_WEBHOOK_FOLDER}/url"

_VOLUME = "alert-webhook"


class SnsReceiver(TypedDict):
    """Alertmanager's `sns_config`, as far as it is used here."""

    topic_arn: str
    sigv4: dict[str, str]
    send_resolved: bool


class WebhookReceiver(TypedDict):
    """Alertmanager's `webhook_config`, as far as it is used here."""

    url_file: str
    send_resolved: bool


class Receiver(TypedDict):
    """Alertmanager's `receiver`; one with a name only drops what it gets."""

    name: str
    sns_configs: NotRequired[list[SnsReceiver]]
    webhook_configs: NotRequired[list[WebhookReceiver]]


class Route(TypedDict):
    """Alertmanager's `route`; a field that is left out is that of the route around it."""

    receiver: str
    matchers: NotRequired[list[str]]
    group_by: NotRequired[list[str]]
    group_wait: NotRequired[str]
    group_interval: NotRequired[str]
    repeat_interval: NotRequired[str]
    routes: NotRequired[list[Route]]


class Inhibition(TypedDict):
    """Alertmanager's `inhibit_rule`."""

    source_matchers: list[str]
    target_matchers: list[str]
    equal: list[str]


class AlertmanagerConfig(TypedDict):
    """Alertmanager's configuration file."""

    route: Route
    inhibit_rules: list[Inhibition]
    receivers: list[Receiver]


@dataclass(frozen=True, kw_only=True)
class Alerting:
    """Who gets alerts.

    Attributes:
        environment: name of the EKS cluster; a label of every alert.
        region: AWS region of the topic and of the secret.
        topic_arn: SNS topic that mails people; None mails nobody.
        webhook_secret: name of the Secrets Manager secret with the webhook's URL; None posts nowhere.
        image: reference of the image that reads the secret.
    """

    environment: str
    region: str
    topic_arn: str | None
    webhook_secret: str | None
    image: str


def alerting_of(settings: StackSettings, release: ReleaseManifest, *, topic_arn: str, registry: str) -> Alerting:
    """Who gets alerts, by the settings.

    Args:
        settings: the environment.
        release: the versions.
        topic_arn: the stack's topic, if it has one.
        registry: host of the stack's ECR and the beginning of its repositories' names.
    """
    return Alerting(
        environment=cluster_name(settings),
        region=settings.aws.region,
        topic_arn=None if settings.monitoring.alert_email is None else topic_arn,
        webhook_secret=settings.monitoring.webhook_secret,
        image=release.images["mlflow"].reference(registry),
    )


def alertmanager_config(alerting: Alerting) -> AlertmanagerConfig:
    """Routes by severity, in the terms of kube-prometheus: `critical` at once and again, `warning` in groups.

    `info` is for looking at, not for being sent; `InfoInhibitor` only silences it where nothing else is wrong, and
    `Watchdog` always fires, for a service outside that misses it, which the platform has none of.
    """
    is_heard = alerting.topic_arn is not None or alerting.webhook_secret is not None
    people = PEOPLE if is_heard else NOBODY
    receivers: list[Receiver] = [{"name": NOBODY}]
    if is_heard:
        receivers.append(_people(alerting))
    return {
        "route": {
            "receiver": people,
            "group_by": ["alertname", "namespace"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "12h",
            "routes": [
                {"receiver": NOBODY, "matchers": ['alertname =~ "Watchdog|InfoInhibitor"']},
                {"receiver": NOBODY, "matchers": ['severity = "info"']},
                {
                    "receiver": people,
                    "matchers": ['severity = "critical"'],
                    "group_wait": "10s",
                    "repeat_interval": "1h",
                },
            ],
        },
        "inhibit_rules": [
            _inhibition('severity = "critical"', 'severity =~ "warning|info"', "namespace", "alertname"),
            _inhibition('severity = "warning"', 'severity = "info"', "namespace", "alertname"),
            _inhibition('alertname = "InfoInhibitor"', 'severity = "info"', "namespace"),
        ],
        "receivers": receivers,
    }


def webhook_pod(alerting: Alerting) -> Manifest:
    """What Alertmanager's pod needs beside it, as fields of its spec: nothing without a webhook."""
    if alerting.webhook_secret is None:
        return {}
    mount = {"name": _VOLUME, "mountPath": _WEBHOOK_FOLDER}
    reader = {
        "name": _VOLUME,
        "image": alerting.image,
        "command": ["python", "-m", "alert_webhook"],
        "args": [f"--secret={alerting.webhook_secret}", f"--region={alerting.region}", f"--file={WEBHOOK_FILE}"],
        "volumeMounts": [mount],
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
        "resources": resources(cpu="10m", memory="128Mi"),
    }
    return {
        "initContainers": [reader],
        "volumes": [{"name": _VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
        "volumeMounts": [{**mount, "readOnly": True}],
    }


def _people(alerting: Alerting) -> Receiver:
    found: Receiver = {"name": PEOPLE}
    if alerting.topic_arn is not None:
        sigv4 = {"region": alerting.region}
        found["sns_configs"] = [{"topic_arn": alerting.topic_arn, "sigv4": sigv4, "send_resolved": True}]
    if alerting.webhook_secret is not None:
        found["webhook_configs"] = [{"url_file": WEBHOOK_FILE, "send_resolved": True}]
    return found


def _inhibition(source: str, target: str, *equal: str) -> Inhibition:
    return {"source_matchers": [source], "target_matchers": [target], "equal": list(equal)}
