"""Teams with their GPU quotas, MLflow, monitoring, mirrors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from infra.spec.matching import Matching
from infra.spec.section import Section
from infra.spec.settings.environment import Email, KubernetesName, RoleArn
from infra.spec.settings.stores import BucketFolder


class Team(Section):
    """A team: a namespace, a queue, and GPU quotas."""

    name: KubernetesName = Field(description="Name of the team, of its namespace and of its queue.")
    roles: tuple[RoleArn, ...] = Field((), description="IAM roles that may submit jobs to the namespace.")
    gpus: dict[str, NonNegativeInt] = Field(
        default_factory=dict, description="GPU quota by GPU group; other teams may borrow idle quota."
    )
    dataset_buckets: tuple[BucketFolder, ...] = Field(
        (), description="S3 buckets, or BUCKET/FOLDER, of any account, that the team's jobs read without a copy on EFS."
    )
    borrow: bool = Field(True, description="The team may borrow idle quota of other teams until they reclaim it.")
    daily_usd: PositiveFloat | None = Field(
        None, description="US dollars that the team's runs may cost in 24 hours before an alert fires; null: no alert."
    )


class MlflowSettings(Section):
    """The MLflow server."""

    replicas: Annotated[int, Field(ge=1, le=10)] = Field(1, description="Server pods.")
    workers: Annotated[int, Field(ge=1, le=32)] = Field(2, description="Worker processes of each pod.")
    cleanup: Literal["delete", "preview", "suspended"] = Field(
        "delete",
        description="Nightly cleanup: delete for good what was deleted long ago | list it in the log | none. "
        "It keeps whatever a registered model refers to.",
    )
    delete_after_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        30, description="Days for which a deleted run, logged model or experiment can be restored."
    )
    backup: Literal["nightly", "suspended"] | None = Field(
        None,
        description="Backup of database and lists of artifacts and checkpoints; null: nightly, except in environments of "
        "kind test. `make backup` makes one at any time.",
    )
    backup_keep_days: Annotated[int, Field(ge=1, le=3650)] | None = Field(
        None,
        description="Days a backup is kept; null: storage.noncurrent_days, for which a deleted artifact is kept. Not more.",
    )
    restore_drill: Literal["weekly", "suspended"] | None = Field(
        None,
        description="Restore of the newest backup beside the database, compared and dropped; null: weekly, except in "
        "environments of kind test.",
    )
    drill_artifacts: Annotated[int, Field(ge=1)] = Field(
        1000, description="Artifacts that a drill reads to the end, chosen at random; it looks all of them up."
    )


class MonitoringSettings(Section):
    """Prometheus, Alertmanager and Grafana."""

    retention_days: PositiveInt = Field(15, description="Retention of metrics in days.")
    storage_gib: Annotated[int, Field(ge=10)] = Field(50, description="Prometheus volume in GiB.")
    memory_gib: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        None, description="Memory of Prometheus in GiB; null: enough for all node groups at max_size."
    )
    open_to_teams: bool = Field(
        False,
        description="Members of teams open Grafana as viewers; its dashboards show the runs and metrics of every team.",
    )
    alert_email: Email | None = Field(None, description="Email address for alerts; null: no email.")
    webhook_secret: (
        Annotated[str, Matching(r"^[A-Za-z0-9/_+=.@-]+$", "must have only letters, digits and the characters /_+=.@-")]
        | None
    ) = Field(
        None,
        max_length=512,
        description="Secrets Manager secret with the URL of the alert webhook; null: no webhook.",
    )


class Mirrors(Section):
    """Mirrors of charts and images, for a network without access to the upstream registries."""

    charts: (
        Annotated[
            str,
            Matching(
                r"^(https|oci)://[^\s]+[^\s/]$",
                "must be a URL that begins with https:// or oci:// and does not end with a slash",
            ),
        ]
        | None
    ) = Field(
        None,
        description="Chart repository with every chart, with the same hashes; null: each chart's own repository.",
    )
    images: (
        Annotated[
            str,
            Matching(
                r"^[a-z0-9][a-z0-9.-]*(:\d+)?(/[a-z0-9][a-z0-9._-]*)*$",
                "must be HOST, HOST:PORT or HOST/PATH in lower case, without https:// and a slash at the end",
            ),
        ]
        | None
    ) = Field(
        None,
        description="Registry and path with every image under its full name; null: each image's own registry.",
    )
