"""The stack's outputs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import pulumi

from infra.aws.program import Platform
from infra.spec import names
from infra.spec.outputs import KEPT_RELEASE, SCHEMA_VERSION, gpu_group_output, read_outputs


def export(platform: Platform) -> None:
    """Export the stack outputs, one per field of `StackOutputs`.

    A preview shows every value that no resource computes. Once all are known, they are validated as a whole.

    Raises:
        SettingsError: while the engine runs, if the contract does not allow a value.
    """
    outputs = {**_outputs(platform), **_kept(os.environ)}
    pulumi.Output.from_input(outputs).apply(lambda known: read_outputs(known, file="stack outputs"))
    for name, value in outputs.items():
        pulumi.export(name, value)


def _kept(environment: Mapping[str, str]) -> dict[str, str]:
    """Outputs that this update leaves as they are, see `KEPT_RELEASE`."""
    found: dict[str, str] = json.loads(environment.get(KEPT_RELEASE) or "{}")
    return found


def _outputs(platform: Platform) -> dict[str, Any]:
    settings, storage = platform.settings, platform.storage
    return {
        "schema_version": SCHEMA_VERSION,
        "platform": platform.release.platform,
        # As text, because outputs lose what is null, as versions are that are not looked up yet.
        "release": platform.release.model_dump_json(exclude_defaults=True),
        "environment": settings.environment.name,
        "kind": settings.environment.kind.value,
        "region": settings.aws.region,
        "account": platform.account,
        "cluster": {
            "name": platform.cluster.name,
            "endpoint": platform.cluster.endpoint,
            "certificate_authority": platform.cluster.certificate_authority,
            "kubernetes": settings.cluster.kubernetes or platform.release.kubernetes.version,
        },
        "registries": platform.registry.urls,
        "storage": {
            "checkpoint_bucket": storage.checkpoints.name,
            "artifact_bucket": storage.artifacts.name,
            "efs_id": storage.file_system.id,
            "efs_access_point": storage.file_system.datasets.id,
            "lustre_id": None if storage.lustre is None else storage.lustre.id,
            "dataset_sources": list(settings.storage.dataset_sources),
        },
        "network": {
            "private_subnets": list(platform.network.private_subnet_ids.values()),
            "node_security_group": platform.cluster.security_group_id,
        },
        "mlflow_uri": names.MLFLOW_URI,
        "roles": {workload: role.arn for workload, role in platform.identity.roles.items()},
        "teams": [
            {
                "name": team.name,
                "namespace": team.name,
                "queue": team.name,
                "dataset_buckets": list(team.dataset_buckets),
                "efs_access_point": storage.file_system.teams[team.name].id,
            }
            for team in settings.teams
        ],
        "gpu_groups": [
            gpu_group_output(group).model_dump(mode="json") for group in platform.node_groups.by_preference()
        ],
        "head_instance_type": settings.head_nodes.instance_type,
        "head_max_nodes": settings.head_nodes.max_size,
        "logs": {
            "destination": settings.logs.destination,
            "log_group": names.container_log_group(settings),
            "loki_url": settings.logs.loki_url,
        },
    }
