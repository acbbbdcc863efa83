"""The workflows and the pipeline that a team gets with the repository are safe, and in step with the project."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.commands.statics import problems
from tests.docs.workflows import GITHUB, GITLAB, ROOT, WORKFLOWS, jobs, load, make_commands_of, pipeline_jobs
from tests.engines.report_table import ran, skipped

WITHOUT_DIGEST = {"pulumi/pulumi-python-3.12"}
"""Images of the pipeline whose digest Renovate has yet to add."""


def test_a_job_that_runs_code_of_the_project_may_write_nothing_in_the_repository_and_has_a_time_limit() -> None:
    running = [job for job in jobs() if job.runs_the_project]
    assert len(running) > 5
    for job in running:
        writes = {scope for scope, access in job.content["permissions"].items() if access == "write"}
        assert writes <= {"id-token"}, job.title
    for job in jobs():
        assert not job.steps or 0 < int(job.content["timeout-minutes"]) <= 180, job.title


def test_a_role_is_a_variable_and_its_job_has_an_environment_that_limits_who_gets_it() -> None:
    assuming = [job for job in jobs() if job.uses("aws-actions/configure-aws-credentials")]
    assert len(assuming) == 5
    for job in assuming:
        (step,) = job.uses("aws-actions/configure-aws-credentials")
        assert set(step["with"]) <= {"role-to-assume", "aws-region", "role-duration-seconds"}
        assert re.fullmatch(r"\$\{\{ vars\.AWS_\w+_ROLE \}\}", step["with"]["role-to-assume"])
        assert job.content["environment"]
        assert re.match(r"vars\.\w+ != ''", job.content["if"])


def test_there_is_no_static_key_and_a_pull_request_of_a_fork_gets_no_role() -> None:
    files = [GITLAB, *(file for file in GITHUB.rglob("*") if file.is_file())]
    pattern = re.compile(r"access-key|ACCESS_KEY|AKIA|secrets\.|session-token", re.IGNORECASE)
    assert [file for file in files if pattern.search(file.read_text(encoding="utf-8"))] == []
    (plan,) = [job for job in jobs() if job.title == "preview.yml plan"]
    assert "head.repo.full_name == github.repository" in plan.content["if"]
    assert "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID" in pipeline_jobs()["preview"]["rules"][0]["if"]


def test_the_make_commands_of_workflows_and_pipeline_exist_with_their_variables() -> None:
    scripts = [script for job in jobs() for script in job.scripts]
    scripts += [line for job in pipeline_jobs().values() for line in job.get("script", [])]
    typed = make_commands_of(iter(scripts))
    assert len(typed) > 10
    assert {text: found for text in typed if (found := [*problems(text)])} == {}


def test_images_and_programs_of_the_pipelines_are_pinned() -> None:
    named = [load(GITLAB)["default"]["image"], *(job["image"] for job in pipeline_jobs().values() if "image" in job)]
    images = [re.fullmatch(r"([\w./-]+):[\w.-]+(@sha256:[0-9a-f]{64})?", image) for image in named]
    assert {image[1] for image in images if image and image[2] is None} <= WITHOUT_DIGEST
    assert None not in images
    lock = (ROOT / "requirements-infra.lock").read_text(encoding="utf-8")
    (version,) = re.findall(r"^pulumi==(\S+)", lock, re.MULTILINE)
    installing = [step for job in jobs() for step in job.uses("pulumi/actions")]
    assert {step["with"]["pulumi-version"] for step in installing} == {version}
    assert pipeline_jobs()["preview"]["image"].partition("@")[0].endswith(f":{version}")


@pytest.mark.extended
def test_the_difference_in_cost_is_what_a_commit_changes(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    clone = ["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(checkout)]
    subprocess.run(clone, check=True, capture_output=True)
    (checkout / ".venv").symlink_to(ROOT / ".venv")
    script = shutil.copy(ROOT / ".ci" / "cost-difference", checkout / ".ci" / "cost-difference")

    def difference() -> str:
        ended = subprocess.run([script, "dev", "HEAD"], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    assert difference() == "no difference\n"
    settings = checkout / "infra" / "environments" / "dev.yaml"
    before = settings.read_text(encoding="utf-8")
    settings.write_text(before.replace("max_size: 2", "max_size: 3", 1), encoding="utf-8")
    changed = difference().splitlines()
    assert any(line.startswith("-│ nodes a10g") for line in changed)
    assert any(line.startswith("+│ sum") for line in changed)
    assert not any("EKS control plane" in line for line in changed)
    worktrees = subprocess.run(["git", "worktree", "list"], cwd=checkout, capture_output=True, text=True, check=True)
    assert len(worktrees.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("program", "arguments", "enable"),
    [
        # Backquotes of Markdown in single quotes, where shellcheck is installed.
        ("actionlint", ["-ignore", "SC2016"], "go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"),
        ("zizmor", ["--offline", "--quiet", "--config", ".github/zizmor.yml"], "make env FOR=dev"),
    ],
)
def test_the_checkers_of_workflows_find_nothing(program: str, arguments: list[str], enable: str) -> None:
    found = shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))
    if found is None:
        skipped(program, f"no {program} on PATH", enable)
    checked = subprocess.run([found, *arguments, *WORKFLOWS], cwd=ROOT, capture_output=True, text=True, check=False)
    ran(program)
    assert checked.returncode == 0, checked.stdout + checked.stderr
