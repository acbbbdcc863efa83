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


def cluster_settings(*overrides: str, config: str = "digits") -> TrainingSettings:
    """The settings of a run as the dev cluster runs it."""
    return on_dev(load_settings([config], overrides=overrides, environment={}))


def on_dev(written: TrainingSettings, *buckets: str) -> TrainingSettings:
    """The settings of a run of a team that may read these buckets."""
    outputs = target().outputs
    team = outputs.teams[0].model_copy(update={"dataset_buckets": buckets})
    return for_cluster(written, outputs, team=team, now=NOW)


def images_in(path: str, *overrides: str) -> TrainingSettings:
    """The settings of a run on an image folder."""
    return load_settings(overrides=["data.dataset=image_folder", f"data.path={path}", *overrides], environment={})


def test_settings_of_the_machine_are_replaced() -> None:
    settings = cluster_settings("scale.launcher=torchrun", "metrics.port=9100")
    assert (settings.scale.launcher, settings.scale.address) == ("ray", "auto")
    assert str(settings.run.directory) == "/mnt/runs"
    assert settings.tracking.uri == target().outputs.mlflow_uri
    assert (settings.metrics.exporter, settings.metrics.host) == ("ray", "0.0.0.0")  # noqa: S104


@pytest.mark.parametrize(("workers", "sizes"), [("2-8", (2, 4, 8)), ("5-8", ()), ("4", ()), ("1-2", (1, 2))])
def test_a_job_of_an_elastic_run_names_the_numbers_of_workers_that_share_its_batch(
    workers: str, sizes: tuple[int, ...]
) -> None:
    settings = cluster_settings(f"scale.workers={workers}", "loop.global_batch=64")
    request = request_of(settings, team="research", options=JobOptions())
    assert request.sizes == sizes
    assert request.workers == (sizes[-1] if sizes else settings.scale.workers)


@pytest.mark.parametrize(("written", "on_the_cluster"), [(120, 1800), (3600, 3600)])
def test_ranks_wait_for_the_node_that_replaces_a_lost_one(written: float, on_the_cluster: float) -> None:
    assert cluster_settings(f"scale.start_timeout={written}").scale.start_timeout == on_the_cluster


def test_all_other_settings_are_kept() -> None:
    written = load_settings(["digits"], overrides=["loop.epochs=3", "loop.global_batch=32"], environment={})
    settings = on_dev(written)
    for section in ("model", "data", "optimizer", "schedule", "loop", "precision"):
        assert getattr(settings, section) == getattr(written, section)


def test_checkpoints_are_copied_to_the_teams_part_of_the_stacks_bucket() -> None:
    outputs = target().outputs
    checkpoint = cluster_settings("checkpoint.every_steps=7").checkpoint
    assert checkpoint.remote == f"s3://{outputs.storage.checkpoint_bucket}/{outputs.teams[0].namespace}"
    assert (checkpoint.remote_owner, checkpoint.every_steps) == (outputs.account, 7)


@pytest.mark.parametrize("given", ["null", "s3://elsewhere/mine"])
def test_a_bucket_that_the_settings_name_and_none_at_all_stay(given: str) -> None:
    checkpoint = cluster_settings(f"checkpoint.remote={given}").checkpoint
    assert checkpoint.remote == (None if given == "null" else given)
    assert checkpoint.remote_owner is None


@pytest.mark.parametrize("path", ["/data/cifar", "/mnt/datasets/../etc", "/mnt/datasetsX", "cifar"])
def test_files_that_the_pods_cannot_read_are_refused(path: str) -> None:
    with pytest.raises(SettingsError, match="read datasets under /mnt/datasets"):
        cluster_settings(f"data.path={path}", config="resnet50-cifar10")


@pytest.mark.parametrize("path", ["/mnt/datasets/cifar", "/mnt/runs/data/cifar"])
def test_shared_datasets_and_the_teams_own_data_are_accepted(path: str) -> None:
    settings = cluster_settings(f"data.path={path}", config="resnet50-cifar10")
    assert str(settings.data.path) == path


def test_data_on_lustre_is_accepted_where_the_stack_has_it() -> None:
    storage = {**target().outputs.storage.model_dump(), "lustre_id": "fs-0123456789abcdef0"}
    written = load_settings(["resnet50-cifar10"], overrides=["data.path=/mnt/lustre/cifar"], environment={})
    outputs = target(storage=storage).outputs
    assert str(for_cluster(written, outputs, team=outputs.teams[0], now=NOW).data.path) == "/mnt/lustre/cifar"


def test_data_on_lustre_is_refused_where_the_stack_has_none() -> None:
    with pytest.raises(
        SettingsError, match=r"data.path=/mnt/lustre/cifar: this stack has no FSx for Lustre"
    ) as refusal:
        cluster_settings("data.path=/mnt/lustre/cifar", config="resnet50-cifar10")
    assert "storage.lustre" in refusal.value.remedy


def test_the_remedy_names_the_target_of_the_copy() -> None:
    with pytest.raises(SettingsError) as refusal:
        cluster_settings("data.path=/data/cifar", config="resnet50-cifar10")
    assert "/mnt/datasets/cifar" in str(refusal.value)
    assert "/mnt/runs/cifar for data that only the team may read" in str(refusal.value)


@given(model=st.text(min_size=1, max_size=80), dataset=st.text(min_size=1, max_size=80))
def test_every_unnamed_run_gets_a_valid_job_name(model: str, dataset: str) -> None:
    settings = TrainingSettings.model_validate({"model": {"name": model}, "data": {"dataset": dataset}})
    name = job_name(settings, now=NOW)
    request = JobRequest(
        name=name, kind="train", team="research", settings_yaml="", workers=1, gpus_per_worker=0, cpus_per_worker=1
    )
    assert len(request.name) <= LONGEST_JOB_NAME
    assert name.endswith("-20261121-080000")


def test_omitted_options_are_taken_from_the_job() -> None:
    before = JobOptions(group="h100", priority="high", deadline_hours=5)
    assert JobOptions(priority="low").or_else(before) == JobOptions(group="h100", priority="low", deadline_hours=5)


def test_a_group_on_the_command_line_replaces_the_choice_of_the_job_and_a_model_its_group() -> None:
    by_model, by_group = JobOptions(gpu_model="a10g", spot=True, restarts=2), JobOptions(group="h100", restarts=2)
    assert JobOptions(group="h100").or_else(by_model) == by_group
    assert JobOptions(gpu_model="l4").or_else(by_group) == JobOptions(gpu_model="l4", restarts=2)
    assert JobOptions(restarts=2).or_else(by_model) == by_model


def test_a_rank_on_cpus_requests_the_cores_of_its_loaders() -> None:
    settings = cluster_settings("scale.cpus_per_worker=2", "data.loader_workers=3")
    request = request_of(settings, team="research", options=JobOptions())
    assert (request.cpus_per_worker, request.loader_cpus) == (5, 3)


@pytest.mark.parametrize(("mode", "needs_float8"), [("bf16", False), ("fp8", True)])
def test_a_run_in_fp8_requests_gpus_that_have_it(mode: str, needs_float8: bool) -> None:  # noqa: FBT001
    settings = cluster_settings("scale.gpu=true", f"precision.mode={mode}")
    assert request_of(settings, team="research", options=JobOptions()).needs_float8 is needs_float8


@pytest.mark.parametrize("allowed", ["corpus", "corpus/images"])
def test_a_dataset_in_a_bucket_of_the_team_is_cached_on_nvme(allowed: str) -> None:
    settings = on_dev(images_in("s3://corpus/images/v2"), "other", allowed)
    assert (settings.data.path, str(settings.data.cache)) == ("s3://corpus/images/v2", "/mnt/cache")
    assert request_of(settings, team="research", options=JobOptions()).needs_cache


def test_a_dataset_on_the_file_system_is_read_in_place_or_cached() -> None:
    for overrides, needs_cache in (((), False), (("data.cache=/mnt/cache",), True)):
        settings = on_dev(images_in("/mnt/datasets/images", *overrides))
        assert request_of(settings, team="research", options=JobOptions()).needs_cache is needs_cache


@pytest.mark.parametrize("allowed", [(), ("other",), ("corpus/images/v1",), ("corp",), ("corpus/image",)])
def test_a_bucket_that_the_team_may_not_read_is_refused(allowed: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match=r"data\.path=s3://corpus/images/v2: the jobs of team") as refusal:
        on_dev(images_in("s3://corpus/images/v2"), *allowed)
    assert ", ".join(allowed) in str(refusal.value)
    assert "dataset_buckets" in refusal.value.remedy


@pytest.mark.parametrize("cache", ["/tmp/cache", "/mnt/cache/../runs", "cache"])
def test_a_cache_outside_the_pods_nvme_is_refused(cache: str) -> None:
    with pytest.raises(SettingsError, match=r"a job's cache is /mnt/cache"):
        on_dev(images_in("/mnt/datasets/images", f"data.cache={cache}"))
