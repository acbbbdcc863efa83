"""The stack's outputs, validated as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from infra.aws.program import Platform
from infra.spec import names
from infra.spec.outputs import SCHEMA_VERSION, StackOutputs, gpu_group_output, read_outputs


def export(platform: Platform) -> None:
    """Export the stack outputs, one per field of `StackOutputs`, after they have been validated as a whole.

    Raises:
        SettingsError: while the engine runs, once a value is known that the contract does not allow.
    """
    validated = pulumi.Output.from_input(_raw_outputs(platform)).apply(_validated)
    for name in StackOutputs.model_fields:
        pulumi.export(name, validated[name])


def _validated(raw: Mapping[str, Any]) -> dict[str, Any]:
    return read_outputs(raw, file="stack outputs").model_dump(mode="json")


def _raw_outputs(platform: Platform) -> dict[str, Any]:
    settings, storage = platform.settings, platform.storage
    return {
        "schema_version": SCHEMA_VERSION,
        "platform": platform.release.platform,
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
        },
        "mlflow_uri": names.MLFLOW_URI,
        "roles": {workload: role.arn for workload, role in platform.identity.roles.items()},
        "teams": [{"name": team.name, "namespace": team.name, "queue": team.name} for team in settings.teams],
        "gpu_groups": [gpu_group_output(group).model_dump(mode="json") for group in platform.node_groups.gpu],
    }
