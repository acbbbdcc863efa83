"""Own code on its way to a job and back, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from platform_charts.images.job_schedule.occurrence import named, with_code
from platform_charts.jobs.code import LARGEST_ARCHIVE_BYTES, joined_parts
from platform_charts.jobs.schedule import ScheduleRequest, occurrence_objects, render_schedule, template_name
from tests.training.cluster.code_of_jobs import project
from tests.training.cluster.team_cluster import dev_outputs, target
from training.cli import main
from training.cluster.job_manifest import JobOptions, request_of
from training.cluster.own_code import packed
from training.code.archive import pack
from training.config.load import load_settings

_MIB = 2**20


def schedule_of(folder: Path) -> ScheduleRequest:
    """A nightly schedule with the code of a folder."""
    name = template_name("nightly")
    settings = load_settings(["digits"], overrides=[f"run.name={name}"], environment={})
    job = request_of(settings, team="research", options=JobOptions(), code=packed(pack(folder)))
    return ScheduleRequest(name="nightly", job=job, cron="0 2 * * *")


def job_yaml(folder: Path, *arguments: str) -> tuple[int, list[Manifest]]:
    """Exit status of `make job`, and the objects that it wrote."""
    outputs, out = folder / "outputs.json", folder / "job.yaml"
    outputs.write_text(json.dumps(dev_outputs()))
    where = ["--env", "dev", "--team", "research", "--outputs", str(outputs), "--out", str(out)]
    status = main(["job", *where, "--name", "digits", *arguments])
    return status, list(yaml.safe_load_all(out.read_text())) if status == 0 else []


def test_job_takes_the_configuration_and_model_of_the_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = project(tmp_path / "project")
    status, (settings, part, ray_job) = job_yaml(tmp_path, "--code", str(code))
    assert status == 0
    assert joined_parts([part]) == pack(code).data
    written = yaml.safe_load(settings["data"]["settings.yaml"])
    assert written["model"] == {"name": "nets:make", "options": {"width": 4}}
    assert "--code /mnt/code-archive/code.tar.gz" in ray_job["spec"]["entrypoint"]
    _, (settings, *_) = job_yaml(tmp_path, "--code", str(code), "--config", "digits")
    assert yaml.safe_load(settings["data"]["settings.yaml"])["model"]["name"] == "simple_cnn"
    assert job_yaml(tmp_path, "--code", str(code), "--model", "absent:make")[0] == 2
    assert "absent" in capsys.readouterr().err


def test_a_large_archive_is_refused_with_the_largest_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _ = job_yaml(tmp_path, "--code", str(project(tmp_path / "large", noise_bytes=5 * _MIB)))
    assert status == 3
    said = capsys.readouterr().err
    assert "has 5.0 MiB, and a job on a cluster carries at most 4; the largest files:\n  5.0 MiB noise.bin" in said
    assert "make image FROM=folder" in said
    with pytest.raises(RefusedError, match=r"noise\.bin"):
        packed(pack(project(tmp_path / "beyond", noise_bytes=LARGEST_ARCHIVE_BYTES)))
    code = project(tmp_path / "words")
    (code / "words.txt").write_text("word " * 2 * _MIB)
    archive = pack(code)
    assert len(archive.data) < LARGEST_ARCHIVE_BYTES < sum(path.stat().st_size for path in code.iterdir())
    assert packed(archive) is not None
    assert packed(None) is None


def test_the_objects_of_a_schedule_fit_and_every_occurrence_has_its_own_code(tmp_path: Path) -> None:
    code = project(tmp_path / "project", noise_bytes=2 * _MIB)
    request = schedule_of(code)
    template, *parts, cron_job = render_schedule(request, target())
    assert len(template["data"]["objects.json"]) < _MIB
    assert len(parts) == 3
    mounted = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["volumes"][1]["projected"]["sources"]
    assert [one["configMap"]["name"] for one in mounted] == [one["metadata"]["name"] for one in parts]
    files = tmp_path / "mounted"
    files.mkdir()
    for one in parts:
        (files / next(iter(one["binaryData"]))).write_bytes(joined_parts([one]))
    filled = with_code(named(template["data"]["objects.json"], request.job.name, "nightly-20261122-0200"), files)
    expected = json.loads(
        json.dumps(occurrence_objects(request, target())).replace(request.job.name, "nightly-20261122-0200")
    )
    assert filled == expected
    (code / "nets.py").write_text("make = None\n")
    _, changed, *_ = render_schedule(schedule_of(code), target())
    assert changed["metadata"]["name"] != parts[0]["metadata"]["name"]
