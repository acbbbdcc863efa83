"""`--image` with `--env`, from the command line to a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from platform_charts.jobs.rayjob import IMAGE_ANNOTATION
from tests.training.cli.command import ask
from tests.training.cluster.team_cluster import TeamCluster, dev_outputs
from tests.training.cluster.test_cluster_commands import file_with
from training.cli import main
from training.cluster.job_manifest import image_of

REPOSITORY = dev_outputs()["registries"]["trainer"]
IMAGE = f"{REPOSITORY}@sha256:{'d' * 64}"


def where(folder: Path) -> list[str]:
    """The dev stack, without a cluster."""
    return ["--env", "dev", "--team", "research", "--outputs", file_with(folder)]


def test_an_image_that_a_job_cannot_name_or_that_lacks_packages_is_refused_before_connecting_to_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "requirements.txt").write_text("numpy>=2\nno-such-package>=1\n")
    for words, status, said, source in (
        (["--image", f"{REPOSITORY}:custom-0123"], 2, "is not a digest reference", "folder"),
        (["--image", f"example.com/trainer@sha256:{'d' * 64}"], 3, f"is not in {REPOSITORY}", "folder"),
        (["--code", str(code)], 3, "\n  no-such-package>=1\n", str(code)),
    ):
        assert main(["train", *where(tmp_path), *words]) == status
        error = capsys.readouterr().err
        assert said in error
        assert f"make image FROM={source} ENV=" in error


def test_a_job_with_an_image_is_written_without_heavy_imports(tmp_path: Path) -> None:
    out = tmp_path / "job.yaml"
    answer = ask("job", *where(tmp_path), "--image", IMAGE, "--out", str(out))
    assert (answer.status, answer.heavy) == (0, frozenset())
    (job,) = [one for one in yaml.safe_load_all(out.read_text()) if one["kind"] == "RayJob"]
    assert image_of(job) == IMAGE


def test_a_resumed_job_runs_in_its_image_until_another_is_named(team_cluster: TeamCluster, name: str) -> None:
    assert team_cluster.run("train", "--name", name, "--image", IMAGE, "--detach") == 0
    other = IMAGE.replace("d" * 64, "e" * 64)
    for words, image in (((), IMAGE), (("--image", other), other)):
        team_cluster.operator_writes(name, jobDeploymentStatus="Failed", jobStatus="FAILED")
        assert team_cluster.run("resume", name, *words, "--detach") == 0
        resumed = team_cluster.job(name)
        assert resumed is not None
        assert (image_of(resumed), resumed["metadata"]["annotations"][IMAGE_ANNOTATION]) == (image, image)
