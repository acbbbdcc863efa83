"""Alertmanager's configuration, and the init container that fetches the webhook's URL.

The URL is a credential and not part of the configuration. The init container reads it from Secrets Manager with
Alertmanager's Pod Identity role and writes it to an in-memory volume, where Alertmanager reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired, TypedDict

from infra.spec.manifest import RESTRICTED_CONTAINER, Manifest
from infra.spec.names import name_prefix
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.container_resources import CONTAINERS

PEOPLE, NOBODY = "people", "nobody"

_WEBHOOK_FOLDER = "/run/alert-webhook"
WEBHOOK_FILE = f"{_WEBHOOK_FOLDER}/url"

_VOLUME = "alert-webhook"


class SnsReceiver(TypedDict):
    """Alertmanager's `sns_config`, the fields in use."""

    topic_arn: str
    sigv4: dict[str, str]
    send_resolved: bool


class WebhookReceiver(TypedDict):
    """Alertmanager's `webhook_config`, the fields in use."""

    url_file: str
    send_resolved: bool


class Receiver(TypedDict):
    """Alertmanager's `receiver`; one without integrations drops its alerts."""

    name: str
    sns_configs: NotRequired[list[SnsReceiver]]
    webhook_configs: NotRequired[list[WebhookReceiver]]


class Route(TypedDict):
    """Alertmanager's `route`; absent fields are inherited from the parent route."""

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


_OBJECT_LABELS = ("instance", "device", "mountpoint", "persistentvolumeclaim", "integration")
"""Labels that say what an alert of the chart is about, if it has two severities: a node's file system, a claim, a receiver.

Without them the alert about one thing would hide that about another. Besides, of several sources with equal labels Alertmanager keeps
one: when that is resolved, the others inhibit nothing until Prometheus sends them again (Alertmanager 0.34, inhibit/inhibit.go).
"""


@dataclass(frozen=True, kw_only=True)
class Alerting:
    """Receivers of alerts.

    Attributes:
        environment: name of the EKS cluster; a label of every alert.
        region: AWS region of the topic and of the secret.
        topic_arn: SNS topic that emails alerts; None without one.
        webhook_secret: name of the Secrets Manager secret with the webhook's URL; None without a webhook.
        image: reference of the init container's image.
    """

    environment: str
    region: str
    topic_arn: str | None
    webhook_secret: str | None
    image: str


def alerting_of(settings: StackSettings, release: ReleaseManifest, *, topic_arn: str, registry: str) -> Alerting:
    """Receivers of alerts, from the settings.

    Args:
        settings: the environment.
        release: the pinned versions.
        topic_arn: ARN of the alert topic, if there is one.
        registry: host of the stack's ECR and the prefix of its repositories.
    """
    return Alerting(
        environment=name_prefix(settings),
        region=settings.aws.region,
        topic_arn=None if settings.monitoring.alert_email is None else topic_arn,
        webhook_secret=settings.monitoring.webhook_secret,
        image=release.images["mlflow"].reference(registry),
    )


def alertmanager_config(alerting: Alerting) -> AlertmanagerConfig:
    """Routes by severity: `critical` promptly and repeated, `warning` grouped, `info` not sent.

    A `critical` alert inhibits the `warning` of its name about the same thing. `InfoInhibitor` would only inhibit `info` alerts, which
    are sent to nobody. `Watchdog` always fires, for an external dead man's switch, which the
    platform does not have.
    """
    has_receiver = alerting.topic_arn is not None or alerting.webhook_secret is not None
    people = PEOPLE if has_receiver else NOBODY
    receivers: list[Receiver] = [{"name": NOBODY}]
    if has_receiver:
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
            {
                "source_matchers": ['severity = "critical"'],
                "target_matchers": ['severity = "warning"'],
                "equal": ["alertname", "namespace", *_OBJECT_LABELS],
            }
        ],
        "receivers": receivers,
    }


def webhook_pod_fields(alerting: Alerting) -> Manifest:
    """Fields of Alertmanager's spec for the init container and its volume; none without a webhook."""
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
        "resources": CONTAINERS["alert-webhook"].manifest(),
    }
    return {
        "initContainers": [reader],
        "volumes": [{"name": _VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
        "volumeMounts": [{**mount, "readOnly": True}],
    }


def _people(alerting: Alerting) -> Receiver:
    receiver: Receiver = {"name": PEOPLE}
    if alerting.topic_arn is not None:
        sigv4 = {"region": alerting.region}
        receiver["sns_configs"] = [{"topic_arn": alerting.topic_arn, "sigv4": sigv4, "send_resolved": True}]
    if alerting.webhook_secret is not None:
        receiver["webhook_configs"] = [{"url_file": WEBHOOK_FILE, "send_resolved": True}]
    return receiver
