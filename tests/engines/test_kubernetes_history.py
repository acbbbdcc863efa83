"""The history of objects, on a real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.kube.definitions import apply_crds
from infra.kube.errors import ApiError
from infra.spec.manifest import Manifest, api_object
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_history import History, watching
from tests.platform_charts.charts.archives import crd

KINDS = {"configmaps": "/api/v1"}
NAMESPACE = "history"


@pytest.fixture
def kept(kubernetes_api: Cluster) -> Iterator[Manifest]:
    """A ConfigMap in a namespace of its own."""
    with kubernetes_api.namespace(NAMESPACE):
        made = api_object("v1", "ConfigMap", "kept", namespace=NAMESPACE, data={"value": "1"})
        kubernetes_api.apply(made)
        yield made


def values(history: History) -> list[list[str]]:
    """The states of each object called `kept`."""
    lives = [life for life in history.lives.values() if life.name == "kept"]
    return [[one["data"]["value"] for one in life.states] for life in lives]


def test_a_change_that_is_undone_at_once_is_seen(kubernetes_api: Cluster, kept: Manifest) -> None:
    with watching(kubernetes_api, KINDS, namespace=NAMESPACE) as history:
        for value in ("2", "1"):
            kubernetes_api.patch(kept, {"data": {"value": value}})
    assert values(history) == [["1", "2", "1"]]


def test_an_object_in_the_place_of_another_is_another_one(kubernetes_api: Cluster, kept: Manifest) -> None:
    with watching(kubernetes_api, KINDS, namespace=NAMESPACE) as history:
        kubernetes_api.delete_all([kept])
        kubernetes_api.apply(kept)
    first, second = (life for life in history.lives.values() if life.name == "kept")
    assert (first.is_deleted, second.is_deleted) == (True, False)
    assert [life.states[0]["metadata"]["uid"] in history.initial for life in (first, second)] == [True, False]


def test_a_watch_outlives_a_change_of_its_crd(kubernetes_api: Cluster) -> None:
    ants = crd("ants", "history.example.com")
    ant = api_object("history.example.com/v1", "Ant", "kept", namespace="default", data={"value": "1"})
    try:
        apply_crds(kubernetes_api, [ants])
        kubernetes_api.apply(ant)
        with watching(kubernetes_api, {"ants": "/apis/history.example.com/v1"}, namespace="default") as history:
            kubernetes_api.patch(ant, {"data": {"value": "2"}})
            ants["spec"]["names"]["shortNames"] = ["an"]
            apply_crds(kubernetes_api, [ants])
            for value in ("3", "4"):
                kubernetes_api.patch(ant, {"data": {"value": value}})
        assert values(history) == [["1", "2", "3", "4"]]
    finally:
        kubernetes_api.delete_all([ants])


def test_a_watch_that_cannot_go_on_fails_the_history(kubernetes_api: Cluster) -> None:
    history = History(kubernetes_api)
    with pytest.raises(ApiError, match="resourceVersion"):
        history.follow("configmaps", "/api/v1/namespaces/default/configmaps", "none")
