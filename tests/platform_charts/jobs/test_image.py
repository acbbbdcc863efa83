"""The image of a job: the release's, or one derived from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.spec.errors import RefusedError, SettingsError
from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.schedule import ScheduleRequest, occurrence_objects, template_name
from tests.kuberay.expand import expand
from tests.platform_charts.jobs.targets import job, rendered, target_of
from training.cluster.job_manifest import JobOptions, options_of

PROD = target_of("prod")
REPOSITORY = PROD.outputs.registries["trainer"]
DERIVED = f"{REPOSITORY}@sha256:{'d' * 64}"


def images(ray_job: Manifest) -> set[str]:
    """The images of all containers of a job's pods."""
    return {container["image"] for pod in expand(ray_job) for container in pod["spec"]["containers"]}


def test_every_pod_runs_the_image_of_the_request_or_the_releases() -> None:
    assert images(rendered(job(image=DERIVED), PROD)) == {DERIVED}
    assert images(rendered(job(), PROD)) == {PROD.release.images["trainer"].reference_in(REPOSITORY)}


def test_an_image_without_a_digest_alone_or_of_another_repository_is_refused() -> None:
    for reference in (f"{REPOSITORY}:custom-0123", REPOSITORY, f"{REPOSITORY}:x@sha256:{'d' * 64}"):
        with pytest.raises(SettingsError, match=r"image=\S+ is not a digest reference") as refused:
            job(image=reference)
        assert "make image FROM=" in refused.value.remedy
    for repository in ("docker.io/library/python", REPOSITORY.replace("trainer", "mlflow"), f"{REPOSITORY}/more"):
        with pytest.raises(RefusedError, match=rf"is not in {REPOSITORY}") as not_ours:
            render_job(job(image=f"{repository}@sha256:{'d' * 64}"), PROD)
        assert "make image FROM=" in not_ours.value.remedy


def test_a_resumed_job_keeps_its_image_and_another_one_replaces_it() -> None:
    kept = options_of(rendered(job(image=DERIVED), PROD))
    assert kept.image == DERIVED
    other = DERIVED.replace("d" * 64, "e" * 64)
    assert JobOptions(image=other).or_else(kept).image == other
    assert JobOptions(group="a100").or_else(kept).image == DERIVED
    # One with the release's image is resumed with that of the next release.
    assert options_of(rendered(job(), PROD)).image is None


def test_every_job_of_a_schedule_runs_the_image() -> None:
    request = replace(job(image=DERIVED), name=template_name("nightly"))
    _, ray_job = occurrence_objects(ScheduleRequest(name="nightly", job=request, cron="0 2 * * *"), PROD)
    assert images(ray_job) == {DERIVED}
