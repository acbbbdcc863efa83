"""Copies to the datasets on a real API server: admission, who may write, and the command that follows the Job.

There is no kubelet: the tests write the status of pods in its place. The controllers of Jobs and volumes are real.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from functools import partial

import pytest

from infra.kube.errors import ApiError
from infra.spec.cluster_names import DATA_ACCOUNT, DATA_NAMESPACE
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.data_sync import CONTAINER, DataSyncRequest, render_data_sync
from platform_charts.jobs.request import Target
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_platform import Environment, in_dev
from tests.platform_charts.test_cluster_backup import end_pod as end_pod_of
from tests.waiting import wait_until
from training.cluster.data_sync import follow, submit
from training.cluster.platform_job import Followed, PodsOfJob
from training.cluster.platform_job import follow as follow_any
from training.errors import ExitStatus

pytestmark = in_dev


class FirstLineError(Exception):
    """Ends the following of a Job with the first line that it says."""


def job_of(
    environment: Environment, source: str = "s3://corpus/images", *, destination: str = "datasets/images"
) -> Manifest:
    outputs = environment.stack.outputs
    storage = outputs.storage.model_copy(update={"dataset_sources": ("corpus", "other")})
    target = environment.target
    stack = Target(
        outputs=outputs.model_copy(update={"storage": storage}), release=target.release, catalog=target.catalog
    )
    return render_data_sync(DataSyncRequest(source=source, destination=destination), stack)


@pytest.fixture
def destination() -> str:
    """A name that no other test copies to: after a quick deletion, the controller may make no pod for a Job of the same name."""
    return f"datasets/images-{secrets.token_hex(3)}"


@pytest.fixture
def made(environment: Environment, destination: str) -> Iterator[Manifest]:
    """A submitted Job."""
    found = submit(environment.cluster, job_of(environment, destination=destination))
    yield found
    environment.cluster.delete_all([{**found, "metadata": {**found["metadata"], "uid": None}}])


def end_pod(cluster: Cluster, made: Manifest, code: int) -> None:
    end_pod_of(cluster, made, code, container=CONTAINER)


def is_over(cluster: Cluster, made: Manifest) -> bool:
    conditions = ((cluster.read(made) or {}).get("status") or {}).get("conditions") or []
    return any(one["type"] in {"Complete", "Failed"} for one in conditions)


def pod_of(job: Manifest) -> Manifest:
    template = job["spec"]["template"]
    metadata = {**template["metadata"], "name": "copy", "namespace": DATA_NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}


def is_refused(cluster: Cluster, pod: Manifest) -> bool:
    try:
        cluster.create(pod, is_dry_run=True)
    except ApiError:
        return True
    return False


def test_the_pod_passes_pod_security(environment: Environment) -> None:
    environment.cluster.create(pod_of(job_of(environment)), is_dry_run=True)
    assert environment.cluster.warnings == []


def test_a_member_of_a_team_can_neither_copy_nor_use_the_account_and_the_volume(environment: Environment) -> None:
    member, job = environment.member(environment.team), job_of(environment)
    metadata = {"name": "copy", "namespace": DATA_NAMESPACE}
    pod = {"apiVersion": "v1", "kind": "Pod", **job["spec"]["template"], "metadata": metadata}
    for made in (job, pod):
        with pytest.raises(ApiError, match="cannot create resource"):
            member.create(made)
    for read in (job, api_object("v1", "ServiceAccount", DATA_ACCOUNT, namespace=DATA_NAMESPACE)):
        with pytest.raises(ApiError, match="cannot get resource"):
            member.read(read)


def test_the_same_copy_is_followed_and_another_to_the_same_destination_is_refused(
    environment: Environment, destination: str, made: Manifest
) -> None:
    same = submit(environment.cluster, job_of(environment, destination=destination))
    assert same["metadata"]["uid"] == made["metadata"]["uid"]
    with pytest.raises(RefusedError, match="writes this destination: s3://corpus/images"):
        submit(environment.cluster, job_of(environment, "s3://other/images", destination=destination))


def test_a_finished_copy_makes_room_for_the_next(environment: Environment, destination: str, made: Manifest) -> None:
    end_pod(environment.cluster, made, 0)
    assert follow(environment.cluster, made) == ExitStatus.DONE
    wait_until(partial(is_over, environment.cluster, made))
    second = submit(environment.cluster, job_of(environment, "s3://other/images", destination=destination))
    assert second["metadata"]["uid"] != made["metadata"]["uid"]


def test_a_copy_that_is_refused_is_not_tried_again_and_ends_the_command_with_its_status(
    environment: Environment, made: Manifest
) -> None:
    end_pod(environment.cluster, made, 3)
    assert follow(environment.cluster, made) == ExitStatus.REFUSED


def test_a_copy_without_a_pod_says_what_the_job_controller_met(environment: Environment) -> None:
    job = job_of(environment, destination="datasets/without-a-pod")
    quota = api_object("v1", "ResourceQuota", "no-pods", namespace=DATA_NAMESPACE, spec={"hard": {"pods": "0"}})

    def stop(line: str) -> None:
        raise FirstLineError(line)

    followed = Followed(container=CONTAINER, subject="the copy", remedy="", say=stop)
    with environment.cluster.applied(quota):
        # The API server admits pods until its cache has the quota.
        wait_until(partial(is_refused, environment.cluster, pod_of(job)))
        made = submit(environment.cluster, job)
        with pytest.raises(FirstLineError, match=r"FailedCreate: .*exceeded quota: no-pods"):
            follow_any(environment.cluster, made, followed)
    environment.cluster.delete_all([job])


def test_a_copy_that_failed_is_tried_again(environment: Environment, made: Manifest) -> None:
    end_pod(environment.cluster, made, 1)
    metadata = made["metadata"]
    pods = PodsOfJob(environment.cluster, metadata["namespace"], metadata["name"], metadata["uid"])
    wait_until(lambda: len(pods.all()) == 2, seconds=60)
    assert not is_over(environment.cluster, made)
