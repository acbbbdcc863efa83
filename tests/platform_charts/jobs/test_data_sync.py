"""The Job that copies a bucket to the datasets."""

from __future__ import annotations

from typing import Any

import pytest

from infra.spec.cluster_names import LONGEST_JOB_NAME, PLATFORM_NAMESPACES
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.outputs import StackOutputs
from platform_charts.images.data_sync.errors import WrongInputError
from platform_charts.images.data_sync.source import parse_destination, parse_source
from platform_charts.jobs.data_sync import DataSyncRequest, render_data_sync
from platform_charts.jobs.request import Target
from tests.platform_charts.jobs.restricted import violations
from tests.platform_charts.jobs.targets import target_of


def with_source(bucket: str, environment: str = "dev") -> Target:
    target = target_of(environment)
    storage = target.outputs.storage.model_copy(update={"dataset_sources": (bucket,)})
    outputs: StackOutputs = target.outputs.model_copy(update={"storage": storage})
    return Target(outputs=outputs, release=target.release, catalog=target.catalog)


def request(**changes: Any) -> DataSyncRequest:  # noqa: ANN401 - fields of any type
    return DataSyncRequest(**{"source": "s3://corpus/images", "destination": "datasets/images", **changes})


def test_the_job_runs_the_program_with_its_options_outside_the_teams_namespaces() -> None:
    job = render_data_sync(request(workers=4, deletes=True), with_source("corpus"))
    assert job["metadata"]["namespace"] in PLATFORM_NAMESPACES
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [
        "s3://corpus/images",
        "datasets/images",
        "--root=/mnt/datasets",
        "--workers=4",
        "--delete",
    ]


def test_the_pod_is_restricted_and_its_root_file_system_is_read_only() -> None:
    pod = render_data_sync(request(), with_source("corpus"))["spec"]["template"]
    assert violations(pod) == []
    assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["automountServiceAccountToken"] is False


def test_a_bucket_that_the_role_may_not_read_is_refused_with_the_setting() -> None:
    with pytest.raises(RefusedError, match=r"bucket other is no source of datasets in dev.*corpus\n.*dataset_sources"):
        render_data_sync(request(source="s3://other/images"), with_source("corpus"))


def test_a_destination_has_one_job_name_and_another_one_has_another() -> None:
    names = {
        request(destination=destination).job_name
        for destination in ("datasets/a-b", "datasets/a/b", "datasets/A-b", f"datasets/{'long' * 20}")
    }
    assert len(names) == 4
    assert max(map(len, names)) <= LONGEST_JOB_NAME
    assert request(destination="datasets/a/").job_name == request(destination="datasets/a").job_name
    assert request(source="s3://other").job_name == request().job_name


def test_command_and_program_refuse_and_take_the_same_destinations() -> None:
    wrong = ("", "datasets", "x", "/datasets/x", "datasets/../x", "datasets/.data-sync", "datasets//x", "datasets/a b")
    for text in (*wrong, "runs/x", "datasets/", "datasets/x/../../y"):
        with pytest.raises(SettingsError, match="must be datasets/NAME"):
            request(destination=text)
        with pytest.raises(WrongInputError, match="must be datasets/NAME"):
            parse_destination(text)
    for text in ("datasets/x", "datasets/x/", "datasets/a/b-1.0_c"):
        assert request(destination=text).destination == text
        assert f"datasets/{parse_destination(text)}" == text.rstrip("/")


def test_command_and_program_refuse_the_same_sources_and_one_is_a_folder() -> None:
    for text in ("", "corpus/images", "s3:/corpus", "s3://", "https://corpus/x"):
        with pytest.raises(SettingsError, match="must be s3://BUCKET"):
            request(source=text)
        with pytest.raises(WrongInputError, match="must be s3://BUCKET"):
            parse_source(text)
    for text, prefix in (("", ""), ("/", ""), ("/a/b", "a/b/"), ("/a/b/", "a/b/")):
        assert parse_source(f"s3://corpus{text}") == ("corpus", prefix)


def test_the_number_of_threads_is_limited() -> None:
    for workers in (0, 129):
        with pytest.raises(SettingsError, match=f"workers={workers} must be between 1 and 128"):
            request(workers=workers)
