"""Reads which volume each team's runs are on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from infra.spec.cluster_names import RUNS_CLAIM
from infra.spec.manifest import Manifest, api_object
from infra.spec.outputs import TeamOutput
from training.cluster.conformance.judges.storage import VolumeFacts

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_SOURCES = ("csi", "local", "hostPath", "nfs")


def volume_facts(api: KubernetesApi, teams: Iterable[TeamOutput]) -> tuple[VolumeFacts, ...]:
    """The volume of each team."""
    return tuple(_facts(api, team) for team in teams)


def _facts(api: KubernetesApi, team: TeamOutput) -> VolumeFacts:
    claim = api.read(api_object("v1", "PersistentVolumeClaim", RUNS_CLAIM, namespace=team.namespace))
    name = str(((claim or {}).get("spec") or {}).get("volumeName", ""))
    volume = api.read(api_object("v1", "PersistentVolume", name)) if name else None
    spec = (volume or {}).get("spec") or {}
    reserved = spec.get("claimRef") or {}
    return VolumeFacts(
        team=team.name,
        volume="" if volume is None else name,
        source=_source(spec),
        reserved_for=f"{reserved['namespace']}/{reserved['name']}" if reserved else "",
        claim=f"{team.namespace}/{RUNS_CLAIM}",
    )


def _source(spec: Manifest) -> str:
    """What a volume mounts; for a driver its handle, of EFS `FILE-SYSTEM::ACCESS-POINT`."""
    found: Manifest = next((spec[kind] for kind in _SOURCES if kind in spec), {})
    return str(found.get("volumeHandle") or json.dumps(found, sort_keys=True))
