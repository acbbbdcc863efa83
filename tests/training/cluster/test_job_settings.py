"""Settings of this machine are converted to those of a cluster."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.spec.cluster_names import LONGEST_JOB_NAME
from platform_charts.jobs.request import JobRequest
from tests.training.cluster.team_cluster import target
from training.cluster.job_manifest import JobOptions, request_of
from training.cluster.job_settings import for_cluster, job_name
from training.config.load import load_settings
from training.config.schema import TrainingSettings
from training.errors import SettingsError

NOW = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)


def cluster_settings(*overrides: str) -> TrainingSettings:
    """The settings of a run as the dev cluster runs it."""
    return on_dev(load_settings(["digits"], overrides=overrides, environment={}))


def on_dev(written: TrainingSettings, *buckets: str) -> TrainingSettings:
    """The settings of a run of a team that may read these buckets."""
    outputs = target().outputs
    team = outputs.teams[0].model_copy(update={"dataset_buckets": buckets})
    return for_cluster(written, outputs, team=team, now=NOW)


def images_in(path: str, *overrides: str) -> TrainingSettings:
    """The settings of a run on an image folder."""
    return load_settings(overrides=["data.dataset=image_folder", f"data.path={path}", *overrides], environment={})


def test_settings_of_the_machine_are_replaced_and_all_others_kept() -> None:
    overrides = ["scale.launcher=torchrun", "metrics.port=9100", "loop.epochs=3", "loop.global_batch=32"]
    written = load_settings(["digits"], overrides=overrides, environment={})
    settings = on_dev(written)
    assert (settings.scale.launcher, settings.scale.address) == ("ray", "auto")
    assert str(settings.run.directory) == "/mnt/runs"
    assert settings.tracking.uri == target().outputs.mlflow_uri
    assert (settings.metrics.exporter, settings.metrics.host) == ("ray", "0.0.0.0")  # noqa: S104
    for section in ("model", "data", "optimizer", "schedule", "loop", "precision"):
        assert getattr(settings, section) == getattr(written, section)
    # Ranks wait for the node that replaces a lost one.
    for seconds, on_the_cluster in ((120, 1800), (3600, 3600)):
        assert cluster_settings(f"scale.start_timeout={seconds}").scale.start_timeout == on_the_cluster


def request(*overrides: str) -> JobRequest:
    return request_of(cluster_settings(*overrides), team="research", options=JobOptions())


def test_a_job_of_an_elastic_run_names_the_numbers_of_workers_that_share_its_batch() -> None:
    for workers, sizes, most in (("2-8", (2, 4, 8), 8), ("5-8", (), 8), ("4", (), 4), ("1-2", (1, 2), 2)):
        found = request(f"scale.workers={workers}", "loop.global_batch=64")
        assert (found.sizes, found.workers) == (sizes, most), workers


def test_a_job_asks_for_the_cores_of_its_loaders_and_for_gpus_that_compute_in_its_precision() -> None:
    found = request("scale.cpus_per_worker=2", "data.loader_workers=3")
    assert (found.cpus_per_worker, found.loader_cpus) == (5, 3)
    for mode, needs_float8 in (("bf16", False), ("fp8", True)):
        assert request("scale.gpu=true", f"precision.mode={mode}").needs_float8 is needs_float8


def test_checkpoints_are_copied_to_the_teams_part_of_the_stacks_bucket_unless_the_settings_name_one() -> None:
    outputs = target().outputs
    checkpoint = cluster_settings("checkpoint.every_steps=7").checkpoint
    assert checkpoint.remote == f"s3://{outputs.storage.checkpoint_bucket}/{outputs.teams[0].namespace}"
    assert (checkpoint.remote_owner, checkpoint.every_steps) == (outputs.account, 7)
    for given_, remote in (("null", None), ("s3://elsewhere/mine", "s3://elsewhere/mine")):
        checkpoint = cluster_settings(f"checkpoint.remote={given_}").checkpoint
        assert (checkpoint.remote, checkpoint.remote_owner) == (remote, None)


def test_data_must_be_where_the_pods_can_read_it() -> None:
    def of(path: str) -> TrainingSettings:
        return load_settings(["resnet50-cifar10"], overrides=[f"data.path={path}"], environment={})

    for path in ("/mnt/datasets/cifar", "/mnt/runs/data/cifar"):
        assert str(on_dev(of(path)).data.path) == path
    for path in ("/data/cifar", "/mnt/datasets/../etc", "/mnt/datasetsX", "cifar"):
        with pytest.raises(SettingsError, match="read datasets under /mnt/datasets") as refusal:
            on_dev(of(path))
        copy = path.rpartition("/")[2]
        assert f"/mnt/datasets/{copy}" in str(refusal.value)
        assert f"/mnt/runs/{copy} for data that only the team may read" in str(refusal.value)
    lustre = of("/mnt/lustre/cifar")
    with pytest.raises(SettingsError, match=r"data.path=/mnt/lustre/cifar: this stack has no .*\n.*storage.lustre"):
        on_dev(lustre)
    outputs = target(storage={**target().outputs.storage.model_dump(), "lustre_id": "fs-0123456789abcdef0"}).outputs
    assert str(for_cluster(lustre, outputs, team=outputs.teams[0], now=NOW).data.path) == "/mnt/lustre/cifar"


@given(model=st.text(min_size=1, max_size=80), dataset=st.text(min_size=1, max_size=80))
def test_every_unnamed_run_gets_a_valid_job_name(model: str, dataset: str) -> None:
    settings = TrainingSettings.model_validate({"model": {"name": model}, "data": {"dataset": dataset}})
    name = job_name(settings, now=NOW)
    request = JobRequest(
        name=name, kind="train", team="research", settings_yaml="", workers=1, gpus_per_worker=0, cpus_per_worker=1
    )
    assert len(request.name) <= LONGEST_JOB_NAME
    assert name.endswith("-20261121-080000")


def test_options_that_are_left_out_are_taken_from_the_job_but_a_group_replaces_its_model_and_the_reverse() -> None:
    before = JobOptions(group="h100", priority="high", deadline_hours=5)
    assert JobOptions(priority="low").or_else(before) == JobOptions(group="h100", priority="low", deadline_hours=5)
    by_model, by_group = JobOptions(gpu_model="a10g", spot=True, restarts=2), JobOptions(group="h100", restarts=2)
    assert JobOptions(group="h100").or_else(by_model) == by_group
    assert JobOptions(gpu_model="l4").or_else(by_group) == JobOptions(gpu_model="l4", restarts=2)
    assert JobOptions(restarts=2).or_else(by_model) == by_model


def test_a_dataset_in_a_bucket_of_the_team_is_cached_on_nvme_and_one_on_the_file_system_if_asked() -> None:
    bucket = "s3://corpus/images/v2"
    local = "/mnt/datasets/images"
    for settings, path, needs_cache in (
        (on_dev(images_in(bucket), "other", "corpus"), bucket, True),
        (on_dev(images_in(bucket), "other", "corpus/images"), bucket, True),
        (on_dev(images_in(local)), local, False),
        (on_dev(images_in(local, "data.cache=/mnt/cache")), local, True),
    ):
        assert str(settings.data.path) == path
        assert (str(settings.data.cache) == "/mnt/cache") is needs_cache
        assert request_of(settings, team="research", options=JobOptions()).needs_cache is needs_cache
    for cache in ("/tmp/cache", "/mnt/cache/../runs", "cache"):
        with pytest.raises(SettingsError, match=r"a job's cache is /mnt/cache"):
            on_dev(images_in(local, f"data.cache={cache}"))


def test_a_bucket_that_the_team_may_not_read_is_refused() -> None:
    for allowed in ((), ("other",), ("corpus/images/v1",), ("corp",), ("corpus/image",)):
        with pytest.raises(SettingsError, match=r"data\.path=s3://corpus/images/v2: the jobs of team") as refusal:
            on_dev(images_in("s3://corpus/images/v2"), *allowed)
        assert ", ".join(allowed) in str(refusal.value)
        assert "dataset_buckets" in refusal.value.remedy
