"""Outputs of a stack that is not deployed, from its recorded program, with made-up ids in the right format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from infra.preview.recorded_outputs import computed, physical_id
from infra.preview.recording import Recording, record
from infra.spec.outputs import StackOutputs, read_outputs
from infra.spec.settings.addresses import control_plane_cidrs
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.phases import ClusterFacts
from platform_charts.objects.storage import LustreVolume

_ACCESS_POINT = "aws:efs/accessPoint:AccessPoint"


class AccessPoint(NamedTuple):
    """A folder of an EFS file system: its path, and the owner and mode with which EFS makes it."""

    path: str
    uid: int
    gid: int
    mode: int


class Recorded(NamedTuple):
    """A recorded stack: outputs for job submission, facts for the builders of the cluster's objects, EFS access points by ID."""

    outputs: StackOutputs
    facts: ClusterFacts
    access_points: Mapping[str, AccessPoint]

    def with_images(self, repositories: Mapping[str, str], digests: Mapping[str, str]) -> Recorded:
        """The stack with our images in another registry, from which pods pull them.

        Args:
            repositories: registry and repository by the image's name in the release manifest.
            digests: digests of the images, by the same names; without any, the stack counts as recorded, as its pods pull nothing.
        """
        changes = {"registries": dict(repositories), "digests": dict(digests), "is_recorded": not digests}
        return self._replace(
            outputs=self.outputs.model_copy(update=changes),
            facts=replace(self.facts, registry=_registry_of(repositories)),
        )


def recorded(settings: StackSettings) -> Recorded:
    """Evaluate the stack's program without a Pulumi engine or an AWS account."""
    graph = record(settings)
    outputs = read_outputs({**graph.outputs, "is_recorded": True}, file="recorded stack")
    database = graph.find("aws:rds/instance:Instance", "mlflow")
    answers = computed(
        database.type,
        database.properties["identifier"],
        database.properties,
        account=outputs.account,
        region=outputs.region,
    )
    facts = ClusterFacts(
        file_system_id=outputs.storage.efs_id,
        datasets_access_point=outputs.storage.efs_access_point,
        team_access_points=_points_of_teams(graph, [team.name for team in settings.teams]),
        database_host=answers["address"],
        database_port=answers["port"],
        database_secret_arn=answers["masterUserSecrets"][0]["secretArn"],
        artifact_bucket=outputs.storage.artifact_bucket,
        registry=_registry_of(outputs.registries),
        account=outputs.account,
        api_server_cidrs=control_plane_cidrs(settings),
        lustre=_lustre(graph, outputs),
    )
    return Recorded(outputs, facts, dict(_folders(graph)))


def _registry_of(repositories: Mapping[str, str]) -> str:
    """Host of the registry and prefix of our repositories."""
    return next(iter(repositories.values())).rpartition("/")[0]


def _lustre(graph: Recording, outputs: StackOutputs) -> LustreVolume | None:
    id_ = outputs.storage.lustre_id
    if id_ is None:
        return None
    found = graph.find("aws:fsx/lustreFileSystem:LustreFileSystem", "lustre")
    answers = computed(found.type, id_, found.properties, account=outputs.account, region=outputs.region)
    return LustreVolume(id_, answers["dnsName"], answers["mountName"])


def _folders(graph: Recording) -> Iterator[tuple[str, AccessPoint]]:
    for point in graph.resources:
        if point.type == _ACCESS_POINT:
            folder = point.properties["rootDirectory"]
            made = folder["creationInfo"]
            yield (
                physical_id(point.type, point.name, point.properties),
                AccessPoint(folder["path"], made["ownerUid"], made["ownerGid"], int(made["permissions"], 8)),
            )


def _points_of_teams(graph: Recording, teams: Sequence[str]) -> Mapping[str, str]:
    points = {team: graph.find(_ACCESS_POINT, f"team-{team}") for team in teams}
    return {team: physical_id(point.type, point.name, point.properties) for team, point in points.items()}
