"""A stack with a running job is deleted in the engine's order, on a real API server with the real operators."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.lifecycle.sandbox.modules import KUEUE
from infra.preview.recording import Recording, Resource
from tests.engines.kubernetes_jobs import job
from tests.engines.kubernetes_operators import Operated, operating, operator_program
from tests.infra.aws.graphs import graph

FINALIZER = "ray.io/rayjob-finalizer"


def waves(recording: Recording) -> Iterator[list[Resource]]:
    """The Kubernetes resources in the order in which Pulumi deletes them: none before the resources that depend on it."""
    left = {one.urn: one for one in recording.resources}
    while left:
        needed = {urn for one in left.values() for urn in (*one.dependencies, one.parent)}
        wave = [one for urn, one in left.items() if urn not in needed]
        yield [one for one in wave if one.type.startswith("kubernetes:")]
        for one in wave:
            del left[one.urn]


def destroy(operated: Operated, recording: Recording) -> None:
    """Delete as `pulumi destroy` does; fails at what is still there after a minute, where Pulumi waits for ten."""
    for wave in waves(recording):
        for release in (one for one in wave if one.type.endswith(":Release") and one.name in operated.operators):
            operated.operators[release.name].stop()
        objects = [one.properties for one in wave if "metadata" in one.properties and one.deleted_with is None]
        operated.cluster.delete_all(objects, seconds=60)


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_a_running_and_a_queued_job_do_not_keep_their_stack() -> None:
    # Over 20 CPU seconds: it destroys a whole stack, so it needs one with all operators of its own.
    operator_program(KUEUE)
    with operating() as operated:
        running = operated.submit(job("running", team="research", group="a10g", workers=8))
        operated.await_state(running, lambda state: state.stage in {"starting", "running"}, what="admitted")
        waiting = operated.submit(job("waiting", team="research", group="a10g", workers=8))
        operated.await_state(waiting, lambda state: state.stage == "queued", what="queued")
        operated.cluster.await_(running, lambda one: FINALIZER in one["metadata"].get("finalizers", ()), what="guarded")
        destroy(operated, graph("dev"))
        names = {one["metadata"]["name"] for one in operated.cluster.items("v1", "Namespace")}
        assert names == {"default", "kube-node-lease", "kube-public", "kube-system"}
        assert operated.cluster.items("ray.io/v1", "RayJob") == []
