"""Own code on its way to a job and back, and on a real API server: submitted, verified by the pod's own commands, submitted again.

The pods' commands run as processes, on what the API server has.
"""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest
import yaml

from infra.kube.errors import ApiError
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object
from platform_charts.images.job_schedule.occurrence import named, with_code
from platform_charts.jobs.code import LARGEST_ARCHIVE_BYTES, PART_BYTES, code_of, joined_parts
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.schedule import ScheduleRequest, occurrence_objects, render_schedule, template_name
from tests.kuberay.expand import expand
from tests.training.cluster.code_of_jobs import deliver, mount_parts, project, train
from tests.training.cluster.team_cluster import TEAM, TeamCluster, outputs_file, target
from tests.waiting import wait_until
from training.cli import main
from training.cluster.job_manifest import JobOptions, request_of
from training.cluster.own_code import packed
from training.cluster.submission import submit
from training.code.archive import pack
from training.config.load import load_settings


def config_map(team_cluster: TeamCluster, name: str) -> Manifest:
    return api_object("v1", "ConfigMap", name, namespace=team_cluster.namespace)


def existing_map(team_cluster: TeamCluster, name: str) -> Manifest:
    return team_cluster.api.existing(config_map(team_cluster, name))


def parts_of(team_cluster: TeamCluster, name: str) -> list[str]:
    """Names of the ConfigMaps with a job's code."""
    found = team_cluster.api.items("v1", "ConfigMap", namespace=team_cluster.namespace)
    names = [str(one["metadata"]["name"]) for one in found]
    return sorted(one for one in names if one.startswith(f"{name}-code-"))


def submitted(team_cluster: TeamCluster, name: str, code: Path) -> Manifest:
    """The RayJob of a job with that code, which was submitted by the command."""
    assert team_cluster.run("train", "--name", name, "--code", str(code), "--detach") == 0
    return team_cluster.existing_job(name)


def unpacked(team_cluster: TeamCluster, job: Manifest, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run the init container of a job's head on the ConfigMaps that it mounts."""
    head, *_ = expand(job)
    mount_parts(team_cluster.api, head, scratch / "parts")
    return deliver(head, scratch)


def replaced(team_cluster: TeamCluster, name: str) -> None:
    """Change a byte of an immutable ConfigMap by deleting and creating it."""
    before = existing_map(team_cluster, name)
    ((key, text),) = before["binaryData"].items()
    data = bytearray(base64.b64decode(text))
    data[len(data) // 2] ^= 1
    team_cluster.api.delete(before)
    wait_until(lambda: team_cluster.api.read(config_map(team_cluster, name)) is None)
    kept = {one: before["metadata"][one] for one in ("labels", "ownerReferences")}
    manifest = api_object("v1", "ConfigMap", name, namespace=team_cluster.namespace)
    manifest["metadata"] |= kept
    team_cluster.api.create({**manifest, "binaryData": {key: base64.b64encode(data).decode()}})


@pytest.mark.extended
def test_the_pods_of_a_job_unpack_the_code_and_train_with_it(
    team_cluster: TeamCluster, name: str, tmp_path: Path
) -> None:
    code = project(tmp_path / "project", noise_bytes=PART_BYTES)
    job = submitted(team_cluster, name, code)
    assert parts_of(team_cluster, name) == [f"{name}-code-0", f"{name}-code-1"]
    for part in parts_of(team_cluster, name):
        owned = existing_map(team_cluster, part)
        assert owned["immutable"] is True
        assert owned["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    (code / "nets.py").write_text("raise RuntimeError('edited after the submission')\n")

    answer = unpacked(team_cluster, job, tmp_path)
    assert answer.returncode == 0, answer.stderr
    settings = team_cluster.existing_settings(name)
    trained = train(job, settings["data"]["settings.yaml"], tmp_path)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    folder = tmp_path / "runs" / name
    identity = pack(project(tmp_path / "again", noise_bytes=PART_BYTES)).identity
    # The archive is kept, and the ranks have imported what the pod unpacked: there is no copy in the run's folder.
    kept = [f"{identity.short}.json", f"{identity.short}.tar.gz"]
    assert sorted(one.name for one in (folder / "code").iterdir()) == kept
    assert json.loads((folder / "code.json").read_text())["sha256"] == identity.sha256
    assert list((folder / "model").iterdir())


def test_an_ended_job_is_resumed_with_its_code_or_other_code(
    team_cluster: TeamCluster, name: str, tmp_path: Path
) -> None:
    code = project(tmp_path / "project", noise_bytes=PART_BYTES)
    before = submitted(team_cluster, name, code)
    (code / "nets.py").write_text("edited = True\n")
    team_cluster.ends(name)
    assert team_cluster.run("resume", name, "--detach") == 0
    again = team_cluster.existing_job(name)
    assert again["metadata"]["uid"] != before["metadata"]["uid"]
    assert code_of(again) == code_of(before)
    assert len(parts_of(team_cluster, name)) == 2
    assert unpacked(team_cluster, again, tmp_path).returncode == 0

    team_cluster.ends(name)
    other = project(tmp_path / "other")
    assert team_cluster.run("resume", name, "--code", str(other), "--detach") == 0
    changed = code_of(team_cluster.existing_job(name))
    assert changed is not None
    assert pack(other).identity.sha256 in changed.identity
    assert parts_of(team_cluster, name) == [f"{name}-code-0"]


def deleted(team_cluster: TeamCluster, name: str) -> None:
    team_cluster.api.delete(existing_map(team_cluster, name))
    wait_until(lambda: team_cluster.api.read(config_map(team_cluster, name)) is None)


def test_lost_or_changed_code_is_named_and_the_old_job_stays(
    team_cluster: TeamCluster, name: str, tmp_path: Path
) -> None:
    code = project(tmp_path / "project")
    before, part = submitted(team_cluster, name, code), f"{name}-code-0"
    team_cluster.ends(name)
    for spoil in (replaced, deleted):
        spoil(team_cluster, part)
        answer = team_cluster.ask("resume", name, "--detach")
        assert answer.status != 0
        for said in (part, "CODE=folder"):
            assert said in answer.err
        assert (f"recorded is {pack(code).identity.sha256}" in answer.err) is (spoil is replaced)
        assert team_cluster.existing_job(name)["metadata"]["uid"] == before["metadata"]["uid"]
    assert team_cluster.run("resume", name, "--code", str(code), "--detach") == 0
    assert unpacked(team_cluster, team_cluster.existing_job(name), tmp_path).returncode == 0


def test_a_stopped_job_is_not_resumed_without_its_mounts(team_cluster: TeamCluster, name: str, tmp_path: Path) -> None:
    for lost, what in (("code-0", "code"), ("settings", "settings")):
        job = f"{name}-{what}"
        submitted(team_cluster, job, project(tmp_path / "project"))
        team_cluster.queue(job, Admitted=False)
        assert team_cluster.api.patch(team_cluster.workload(job) or {}, {"spec": {"active": False}})
        team_cluster.operator_writes(job, jobDeploymentStatus="Suspended")
        deleted(team_cluster, f"{job}-{lost}")
        team_cluster.refuses(3, f"job {job} has lost its {what}, ConfigMap", "resume", job, "--detach")
        assert (team_cluster.workload(job) or {})["spec"]["active"] is False


def test_a_submission_that_fails_halfway_leaves_nothing(team_cluster: TeamCluster, name: str, tmp_path: Path) -> None:
    code = packed(pack(project(tmp_path / "project", noise_bytes=PART_BYTES)))
    settings = load_settings(["digits"], overrides=[f"run.name={name}"], environment={})
    objects = render_job(request_of(settings, team=TEAM, options=JobOptions(), code=code), target())
    for one in objects:
        one["metadata"]["namespace"] = team_cluster.namespace
    before = len(team_cluster.api.items("v1", "ConfigMap", namespace=team_cluster.namespace))
    quota = api_object("v1", "ResourceQuota", "maps", namespace=team_cluster.namespace)
    with team_cluster.api.applied({**quota, "spec": {"hard": {"count/configmaps": str(before + 2)}}}):
        wait_until(lambda: "used" in (team_cluster.api.read(quota) or {}).get("status", {}))
        with pytest.raises(ApiError, match="exceeded quota: maps"):
            submit(team_cluster.api, objects, env="dev")
    wait_until(lambda: team_cluster.job(name) is None)
    wait_until(lambda: parts_of(team_cluster, name) == [] and team_cluster.settings_of(name) is None)


_MIB = 2**20


def schedule_of(folder: Path) -> ScheduleRequest:
    """A nightly schedule with the code of a folder."""
    name = template_name("nightly")
    settings = load_settings(["digits"], overrides=[f"run.name={name}"], environment={})
    job = request_of(settings, team="research", options=JobOptions(), code=packed(pack(folder)))
    return ScheduleRequest(name="nightly", job=job, cron="0 2 * * *")


def job_yaml(folder: Path, *arguments: str) -> tuple[int, list[Manifest]]:
    """Exit status of `make job`, and the objects that it wrote."""
    out = folder / "job.yaml"
    where = ["--env", "dev", "--team", "research", "--outputs", str(outputs_file(folder)), "--out", str(out)]
    status = main(["job", *where, "--name", "digits", *arguments])
    return status, list(yaml.safe_load_all(out.read_text())) if status == 0 else []


def test_job_takes_the_configuration_and_model_of_the_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = project(tmp_path / "project")
    status, (settings, part, ray_job) = job_yaml(tmp_path, "--code", str(code))
    assert status == 0
    assert joined_parts([part]) == pack(code).data
    written = yaml.safe_load(settings["data"]["settings.yaml"])
    assert written["model"] == {"name": "nets:make", "options": {"width": 4}, "output": None}
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
