"""The cache of a dataset on a local disk: real copies by the real program, and runs that read them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.engines.s3 import S3Api
from tests.engines.small_disk import small_disk
from tests.platform_charts.images.data_sync.bucket import new_bucket
from tests.training.inspection.test_command import write_images
from training.config.load import load_settings
from training.config.schema import DataSettings
from training.data.cache import LIMIT_VARIABLE, cached, fill
from training.errors import DataError, PreflightError, SettingsError, TrainingFailedError
from training.preflight import Machine, check

SECONDS = 60
EMPTY: Mapping[str, str] = {}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A small image folder of 32 files."""
    return write_images(tmp_path / "images")


def data(path: Path | str, cache: Path) -> DataSettings:
    return DataSettings.model_validate({"dataset": "image_folder", "path": str(path), "cache": str(cache)})


def copy(settings: DataSettings, environment: Mapping[str, str] = EMPTY, *, is_restart: bool = False) -> list[str]:
    """Fill the cache; returns what was reported."""
    lines: list[str] = []
    fill(settings, is_restart=is_restart, report=lines.append, environment={**os.environ, **environment})
    return lines


def contents(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_a_restart_repairs_the_copy_and_a_new_run_copies_changes(images: Path, tmp_path: Path) -> None:
    settings, file = data(images, tmp_path / "cache"), Path("train/cat/00.png")
    copy(settings)
    copied, before = cached(settings).folder, contents(images)
    assert contents(copied) == before
    assert cached(settings).cache is None
    assert cached(cached(settings)) == cached(settings)
    (copied / file).write_bytes(b"damaged")
    copy(settings, is_restart=True)
    assert contents(copied) == before
    (images / file).write_bytes(b"changed")
    copy(settings, is_restart=True)
    assert contents(copied) == before
    assert any("31 are there, 1 to copy" in line for line in copy(settings))
    assert contents(copied) == contents(images)


def test_two_runs_share_a_cache_and_the_second_one_waits(images: Path, tmp_path: Path) -> None:
    settings = data(images, tmp_path / "cache")
    outputs: list[list[str]] = []
    threads = [threading.Thread(target=lambda: outputs.append(copy(settings))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    copied = [line for output in outputs for line in output if "to copy" in line]
    assert sorted("32 to copy" in line for line in copied) == [False, True]
    assert contents(cached(settings).folder) == contents(images)


def test_a_killed_rank_leaves_no_copier_behind_and_the_next_one_continues(images: Path, tmp_path: Path) -> None:
    settings = data(images, tmp_path / "cache")
    script = (
        "import os, signal, sys\n"
        "from training.config.schema import DataSettings\n"
        "from training.data.cache import fill\n"
        "def report(line):\n"
        "    if 'to copy' in line: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"fill(DataSettings.model_validate_json({settings.model_dump_json()!r}), is_restart=False, report=report)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=SECONDS).returncode == -9
    copy(settings)  # waits for the lock that a copier left behind would hold
    assert contents(cached(settings).folder) == contents(images)


def test_a_dataset_that_does_not_fit_or_cannot_be_written_is_refused(images: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"data\.cache=.*file/cache cannot be written"):
        copy(data(images, tmp_path / "file" / "cache"))
    (images / "train" / "cat" / "large.png").write_bytes(bytes(2**30))
    with pytest.raises(
        DataError, match=r"needs 1\.1 GB .* of its limit of 1\.1 GB .* has 1\.1 GB \(1073741824 bytes\) free"
    ):
        copy(data(images, tmp_path / "cache"), {LIMIT_VARIABLE: "1"})


def test_a_full_disk_is_refused(images: Path, tmp_path: Path) -> None:
    (images / "train" / "cat" / "large.png").write_bytes(bytes(2_000_000))
    with small_disk(tmp_path / "disk", size="1m"), pytest.raises(DataError, match=r"the file system has .* free"):
        copy(data(images, tmp_path / "disk" / "cache"))


def test_a_folder_of_a_bucket_is_copied_and_others_are_refused(s3_api: S3Api, images: Path, tmp_path: Path) -> None:
    with new_bucket(s3_api, tmp_path / "unused") as bucket:
        bucket.put(contents(images))
        settings = data(f"s3://{bucket.name}/data", tmp_path / "cache")
        copy(settings, s3_api.environment())
        assert contents(cached(settings).folder) == contents(images)
        with pytest.raises(DataError, match="has no objects"):
            copy(data(f"s3://{bucket.name}/nothing", tmp_path / "cache"), s3_api.environment())
    with pytest.raises(TrainingFailedError, match=r"data\.path=s3://no-such-bucket/data was not copied.*NoSuchBucket"):
        copy(data("s3://no-such-bucket/data", tmp_path / "cache"), s3_api.environment())


def test_a_bucket_without_a_cache_and_a_cache_without_a_source_or_in_it_are_refused(tmp_path: Path) -> None:
    overrides = ["data.dataset=image_folder", "data.path=s3://corpus/images", f"run.directory={tmp_path}"]
    settings = load_settings(overrides=overrides, environment={})
    with pytest.raises(
        PreflightError, match=r"data\.path=s3://corpus/images is in a bucket, and data\.cache is not set"
    ):
        check(settings, Machine(cpus=2, gpus=0))
    with pytest.raises(SettingsError, match="has nothing to copy: path is not set"):
        load_settings(overrides=["data.cache=/c"], environment={})
    with pytest.raises(SettingsError, match="would be copied into itself"):
        load_settings(overrides=["data.dataset=image_folder", "data.path=/d", "data.cache=/d/c"], environment={})
