"""Watching objects of a real API server."""

from __future__ import annotations

import pytest

from infra.kube.api import KubernetesApi
from infra.lifecycle.sandbox.control_plane import ControlPlane

pytestmark = pytest.mark.extended


def test_a_watch_gives_all_objects_after_each_change_until_its_time(control_plane: ControlPlane) -> None:
    api = KubernetesApi(control_plane.client())
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "watched"}}
    states = api.watched("v1", "Namespace", seconds=30)
    first = next(states)
    assert "default" in {one["metadata"]["name"] for one in first.values()}
    uid = api.apply(namespace)["metadata"]["uid"]
    assert next(found for found in states if uid in found)[uid]["metadata"]["name"] == "watched"
    api.delete(namespace)
    last = next(found for found in states if uid not in found)
    assert last.keys() >= {uid for uid, one in first.items() if "deletionTimestamp" not in one["metadata"]}
    api = KubernetesApi(control_plane.client())
    assert len(list(api.watched("v1", "PersistentVolume", seconds=1))) >= 1
