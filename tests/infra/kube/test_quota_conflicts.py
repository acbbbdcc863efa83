"""Writes to a namespace whose quota others change at the same time, on a real API server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from infra.kube import api as module
from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.manifest import Manifest
from tests.engines.kubernetes import Cluster

NAMESPACE = "contended"
QUOTA: Manifest = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "team", "namespace": NAMESPACE},
    "spec": {"hard": {"count/configmaps": "100"}},
}
CONFIG_MAP: Manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": NAMESPACE}}
WRITERS = 6
"""Threads that change the quota: with as many, 58 of 60 writes of others conflicted."""

OBJECTS = 10


def create(api: KubernetesApi, number: int) -> Manifest:
    """Create an object, because the quota is charged for a new object only."""
    return api.create({**CONFIG_MAP, "metadata": {**CONFIG_MAP["metadata"], "name": f"map-{number}"}})


def create_many(api: KubernetesApi) -> None:
    """Create nearly as many objects as the quota allows, from several threads: on a busy machine few writes conflict twice."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(partial(create, api), range(90)))


@pytest.fixture
def stop_changes(kubernetes_api: Cluster, control_plane: ControlPlane) -> Iterator[Callable[[], None]]:
    """The quota's object changes all the time, until this function is called."""
    has_ended = threading.Event()

    def change() -> None:
        api = KubernetesApi(control_plane.client())
        count = 0
        while not has_ended.is_set():
            api.patch(QUOTA, {"metadata": {"annotations": {"changed": str(count := count + 1)}}})

    with kubernetes_api.namespace(NAMESPACE):
        kubernetes_api.apply(QUOTA)
        kubernetes_api.await_(QUOTA, lambda quota: "used" in quota.get("status", {}), what="counted")
        threads = [threading.Thread(target=change) for _ in range(WRITERS)]
        for thread in threads:
            thread.start()
        try:
            yield has_ended.set
        finally:
            has_ended.set()
            for thread in threads:
                thread.join()


def test_a_write_that_conflicts_is_repeated(stop_changes: Callable[[], None], kubernetes_api: Cluster) -> None:
    timer = threading.Timer(1, stop_changes)
    timer.start()
    written = [create(kubernetes_api, number) for number in range(OBJECTS)]
    timer.join()
    assert len({one["metadata"]["uid"] for one in written}) == OBJECTS


def test_conflicts_that_do_not_end_are_reported_with_a_remedy(
    stop_changes: Callable[[], None], kubernetes_api: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_QUOTA_PAUSES", (0.01,))
    with pytest.raises(ApiError, match=r"answers 409: .* resourcequotas \"team\"") as raised:
        create_many(kubernetes_api)
    stop_changes()
    assert "try again" in raised.value.remedy
