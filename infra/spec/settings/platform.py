"""What runs on the cluster: teams with their share of the GPUs, MLflow, monitoring, and where all of it comes from."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from infra.spec.section import Section
from infra.spec.settings.environment import Email, KubernetesName, RoleArn


class Team(Section):
    """A team: a namespace, a queue, and its share of the GPUs."""

    name: KubernetesName = Field(description="Name of the team, of its namespace and of its queue.")
    roles: tuple[RoleArn, ...] = Field((), description="IAM roles whose bearers may submit jobs into the namespace.")
    gpus: dict[str, NonNegativeInt] = Field(
        default_factory=dict, description="GPUs that are the team's own, by GPU group; what is idle may be lent."
    )
    borrow: bool = Field(True, description="The team may use GPUs that other teams leave idle, until they want them.")


class MlflowSettings(Section):
    """The MLflow server."""

    replicas: Annotated[int, Field(ge=1, le=10)] = Field(1, description="Server pods.")
    workers: Annotated[int, Field(ge=1, le=32)] = Field(2, description="Worker processes of each pod.")


class MonitoringSettings(Section):
    """Prometheus, Alertmanager and Grafana."""

    retention_days: PositiveInt = Field(15, description="Days metrics are kept.")
    storage_gib: Annotated[int, Field(ge=10)] = Field(50, description="Volume of Prometheus in GiB.")
    alert_email: Email | None = Field(None, description="Who gets alerts by mail; null mails nobody.")
    webhook_secret: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9/_+=.@-]+$",
        max_length=512,
        description="Name of the Secrets Manager secret that holds the URL alerts are posted to; null posts nowhere.",
    )


class Mirrors(Section):
    """Where charts and images come from in a network that does not reach their publishers."""

    charts: str | None = Field(
        None,
        pattern=r"^(https|oci)://[^\s]+[^\s/]$",
        description="Chart repository that holds every chart, by the same hashes; null asks each chart's own.",
    )
    images: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9.-]*(:\d+)?(/[a-z0-9][a-z0-9._-]*)*$",
        description="Registry, and path in it, that holds every image below its full name; null asks each image's own.",
    )
