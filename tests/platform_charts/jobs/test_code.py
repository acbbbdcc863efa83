"""Own code in the pods of a job: parts, volumes, and the container that unpacks them."""

from __future__ import annotations

import base64
import json
import random
import shlex
from typing import Any

import pytest

from infra.spec.cluster_names import CODE_ARCHIVE_PATH, CODE_PATH, TRAINER_PATH
from infra.spec.manifest import Manifest
from platform_charts.jobs.code import LARGEST_ARCHIVE_BYTES, PART_BYTES, PackedCode, code_of, joined_parts
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import JobRequest
from tests.kuberay.expand import expand
from tests.platform_charts.jobs.restricted import violations
from tests.platform_charts.jobs.targets import job, target_of, variables, worker_of

PROD = target_of("prod")
IDENTITY = json.dumps({"sha256": "ab" * 32, "revision": None, "is_dirty": None})
_CONFIG_MAP_BYTES, _ETCD_REQUEST_BYTES = 2**20, 3 * 2**19
"""Kubernetes' and etcd's limits; see `PART_BYTES`."""


def packed(size: int = 1000) -> PackedCode:
    return PackedCode(identity=IDENTITY, data=random.Random(size).randbytes(size))


def with_code(size: int = 1000, **changes: Any) -> tuple[JobRequest, list[Manifest], Manifest]:  # noqa: ANN401  # fields of any type
    """The request of a job with an archive of that size, its ConfigMaps with parts, and its RayJob."""
    request = job(code=packed(size), **changes)
    _settings, *parts, ray_job = render_job(request, PROD)
    return request, parts, ray_job


def ray_pods(ray_job: Manifest) -> list[Manifest]:
    *pods, _submitter = expand(ray_job)
    return pods


@pytest.mark.parametrize(("size", "count"), [(PART_BYTES, 1), (PART_BYTES + 1, 2), (LARGEST_ARCHIVE_BYTES, 6)])
def test_the_parts_are_the_archive_and_fit_into_objects(size: int, count: int) -> None:
    request, parts, ray_job = with_code(size)
    assert request.code is not None
    assert joined_parts(parts) == request.code.data
    assert [one["metadata"]["name"] for one in parts] == [f"resnet101-code-{number}" for number in range(count)]
    for one in parts:
        (text,) = one["binaryData"].values()
        assert len(base64.b64decode(text)) <= _CONFIG_MAP_BYTES
        assert len(json.dumps(one)) <= _ETCD_REQUEST_BYTES
        assert one["immutable"] is True
        assert one["metadata"]["labels"] == render_job(request, PROD)[0]["metadata"]["labels"]
    found = code_of(json.loads(json.dumps(ray_job)))
    assert found is not None
    assert (list(found.config_maps), found.identity) == ([one["metadata"]["name"] for one in parts], IDENTITY)


def test_more_than_ten_parts_would_keep_their_order() -> None:
    parts = [{"binaryData": {f"part-{number:02d}": base64.b64encode(bytes([number])).decode()}} for number in range(12)]
    assert joined_parts(parts[::-1]) == bytes(range(12))


def test_every_ray_pod_unpacks_the_code_before_anything_else() -> None:
    _, _, ray_job = with_code()
    head, *workers = ray_pods(ray_job)
    assert [one["name"] for one in head["spec"]["initContainers"]] == ["code"]
    for worker in workers:
        assert [one["name"] for one in worker["spec"]["initContainers"]] == ["code", "wait-gcs-ready"]
    for pod in (head, *workers):
        delivery, ray = pod["spec"]["initContainers"][0], pod["spec"]["containers"][0]
        assert delivery["image"] == ray["image"]
        assert delivery["securityContext"] == ray["securityContext"]
        assert f"--identity={IDENTITY}" in delivery["args"]
    *_, submitter = expand(ray_job)
    assert "initContainers" not in submitter["spec"]
    assert [violations(pod) for pod in expand(ray_job)] == [[] for _ in expand(ray_job)]


def test_rays_container_reads_what_the_delivery_writes_and_cannot_change_it() -> None:
    _, _, ray_job = with_code()
    for pod in ray_pods(ray_job):
        (ray,) = pod["spec"]["containers"]
        mounts = {one["mountPath"]: one for one in ray["volumeMounts"]}
        for path in (CODE_PATH, CODE_ARCHIVE_PATH):
            assert (mounts[path]["readOnly"], mounts[path]["name"]) == (True, "code")
        assert variables(ray)["PYTHONPATH"] == f"{TRAINER_PATH}:{CODE_PATH}"
        assert variables(ray)["RTP_CODE_FOLDER"] == CODE_PATH
        assert not any(one["name"] == "code-parts" for one in ray["volumeMounts"])
        delivery = pod["spec"]["initContainers"][0]
        options = dict(one.removeprefix("--").split("=", 1) for one in delivery["args"])
        (volume,) = [one["mountPath"] for one in delivery["volumeMounts"] if one["name"] == "code"]
        mounted = {f"{volume}/{one['subPath']}": path for path, one in mounts.items() if one["name"] == "code"}
        assert mounted[options["files"]] == CODE_PATH
        folder, name = options["archive"].rsplit("/", 1)
        words = shlex.split(ray_job["spec"]["entrypoint"])
        assert words[words.index("--code") + 1] == f"{mounted[folder]}/{name}"


def test_the_delivery_enlarges_no_pod_and_keeps_workers_guaranteed() -> None:
    _, _, ray_job = with_code(gpus_per_worker=0, workers=1, cpus_per_worker=1)
    head = ray_job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    for spec in (head, worker_of(ray_job)):
        (delivery,), (ray,) = spec["initContainers"], spec["containers"]
        asked = delivery["resources"]["requests"]
        assert asked == delivery["resources"]["limits"]
        assert int(asked["cpu"]) <= int(ray["resources"]["requests"]["cpu"])
        assert int(asked["memory"].removesuffix("Mi")) <= 1024 * int(ray["resources"]["requests"]["memory"][:-2])


def test_another_program_gets_the_code_and_no_option_of_the_trainer() -> None:
    _, _, ray_job = with_code(kind="conformance", command=("python", "check.py"))
    assert ray_job["spec"]["entrypoint"] == "python check.py"
    assert variables(ray_pods(ray_job)[0]["spec"]["containers"][0])["RTP_CODE_FOLDER"] == CODE_PATH


def test_a_job_without_code_and_a_session_have_no_delivery() -> None:
    session = job(name="session-a", kind="session", command=("true",))
    for request in (job(), session):
        _settings, ray_job = render_job(request, PROD)
        assert code_of(ray_job) is None
        assert "initContainers" not in worker_of(ray_job)
