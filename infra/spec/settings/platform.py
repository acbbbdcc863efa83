"""What runs on the cluster: teams with their GPU quotas, MLflow, monitoring, mirrors."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from infra.spec.section import Section
from infra.spec.settings.environment import Email, KubernetesName, RoleArn


class Team(Section):
    """A team: a namespace, a queue, and GPU quotas."""

    name: KubernetesName = Field(description="Name of the team, of its namespace and of its queue.")
    roles: tuple[RoleArn, ...] = Field((), description="IAM roles that may submit jobs to the namespace.")
    gpus: dict[str, NonNegativeInt] = Field(
        default_factory=dict, description="GPU quota by GPU group; idle quota may be lent to other teams."
    )
    borrow: bool = Field(True, description="The team may borrow idle GPUs of other teams, until they reclaim them.")


class MlflowSettings(Section):
    """The MLflow server."""

    replicas: Annotated[int, Field(ge=1, le=10)] = Field(1, description="Server pods.")
    workers: Annotated[int, Field(ge=1, le=32)] = Field(2, description="Worker processes of each pod.")


class MonitoringSettings(Section):
    """Prometheus, Alertmanager and Grafana."""

    retention_days: PositiveInt = Field(15, description="Days metrics are kept.")
    storage_gib: Annotated[int, Field(ge=10)] = Field(50, description="Volume of Prometheus in GiB.")
    alert_email: Email | None = Field(None, description="Mail address for alerts; null sends no mail.")
    webhook_secret: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9/_+=.@-]+$",
        max_length=512,
        description="Name of the Secrets Manager secret that holds the URL alerts are posted to; null has no webhook.",
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
