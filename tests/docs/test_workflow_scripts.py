"""The longer scripts of the workflows, run as GitHub runs them; the only fake is its command line `gh`, which notes its arguments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.workflows import jobs
from tests.engines.report_table import skipped

_GH = """#!/usr/bin/env bash
printf '%s\\n' "$*" >>"$GH_LOG"
case "$*" in
  *--paginate*) echo "$GH_COMMENTS" ;;
  "issue list"*) echo "$GH_ISSUES" ;;
  "pr list"*) echo "$GH_PULL_REQUESTS" ;;
esac
"""

Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Runs the script of a step in an empty folder, with GitHub's variables and others."""
    for program in ("jq", "yq"):
        if shutil.which(program) is None:
            skipped(program, f"no {program} on PATH", f"apt-get install {program}")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "gh").write_text(_GH, encoding="utf-8")
    (programs / "gh").chmod(0o755)
    (tmp_path / "work").mkdir()
    (tmp_path / "temp").mkdir()
    always = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "GH_LOG": str(tmp_path / "gh.log"),
        "GH_COMMENTS": "",
        "GH_ISSUES": "[]",
        "GH_PULL_REQUESTS": "0",
        "GITHUB_REPOSITORY": "example/platform",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "RUN_URL": "https://github.example/run/1",
        "HOME": str(tmp_path),
    }

    def run(workflow: str, step: str, **variables: str) -> subprocess.CompletedProcess[str]:
        (text,) = [
            one["run"] for job in jobs() if job.workflow == workflow for one in job.steps if one.get("name") == step
        ]
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
        environment = {**always, **variables}
        return subprocess.run(
            command, cwd=tmp_path / "work", env=environment, capture_output=True, text=True, check=False
        )

    return run


def calls(folder: Path) -> list[str]:
    """What `gh` was called with."""
    log = folder / "gh.log"
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def test_the_comment_shows_plan_and_cost_as_they_are_and_a_later_push_updates_it(
    script: Script, tmp_path: Path
) -> None:
    report = tmp_path / "work" / "reports" / "preview-dev"
    report.mkdir(parents=True)
    (report / "cost.txt").write_text("no difference\n", encoding="utf-8")
    (report / "plan.txt").write_text("+ aws:eks:Cluster\n</details> @everyone\n", encoding="utf-8")
    step = "Write the comment, or update the earlier one"
    ended = script("preview.yml", step, NUMBER="7", RESULT="success")
    assert ended.returncode == 0, ended.stderr
    lines = (tmp_path / "work" / "comment.md").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == [
        "<!-- preview of the environments -->",
        "**Preview: success.** [Log and artifacts](https://github.example/run/1)",
    ]
    assert {"### dev", "    no difference", "    + aws:eks:Cluster", "    </details> @everyone"} <= {*lines}
    assert calls(tmp_path)[-1] == "api repos/example/platform/issues/7/comments --field body=@comment.md"
    ended = script("preview.yml", step, NUMBER="7", RESULT="failure", GH_COMMENTS="42\n43")
    assert ended.returncode == 0, ended.stderr
    assert calls(tmp_path)[-1].startswith("api --method PATCH repos/example/platform/issues/comments/42 ")


def test_drift_opens_updates_and_closes_an_issue(script: Script, tmp_path: Path) -> None:
    folder = tmp_path / "work" / "drift" / "drift-prod"
    folder.mkdir(parents=True)
    one = {"where": "account", "kind": "changed", "resource": "aws:s3/bucket:Bucket runs", "paths": ["tags", "acl"]}
    in_prod = '[{"number": 5, "title": "Drift in prod"}]'
    for differences, issues, wanted in (
        (1, "[]", "issue create --title Drift in prod --label drift --body-file body.md"),
        (1, in_prod, "issue edit 5 --body-file body.md"),
        (0, in_prod, "issue close 5 --comment No difference any more"),
        (0, '[{"number": 5, "title": "Drift in dev"}]', "issue list"),
        (None, in_prod, "label create"),
    ):
        found = None if differences is None else {"environment": "prod", "differences": [one] * differences}
        (folder / "drift.json").write_text("" if found is None else json.dumps(found), encoding="utf-8")
        ended = script("drift.yml", "Open, update or close the issue of each environment", GH_ISSUES=issues)
        assert ended.returncode == 0, ended.stderr
        assert calls(tmp_path)[-1].startswith(wanted)
        if differences:
            body = (tmp_path / "work" / "body.md").read_text(encoding="utf-8")
            assert "    account changed aws:s3/bucket:Bucket runs: tags, acl" in body.splitlines()


def git(folder: Path, *arguments: str) -> str:
    """Run git; returns its output."""
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def checkout(script: Script, tmp_path: Path) -> Path:
    """A checkout with a file, and the repository that it came from."""
    work, origin = tmp_path / "work", tmp_path / "origin"
    git(tmp_path, "init", "--quiet", "--bare", str(origin))
    git(work, "init", "--quiet", "--initial-branch=main")
    (work / "release.yaml").write_text("version: 1\n", encoding="utf-8")
    git(work, "add", "--all")
    git(work, "commit", "--quiet", "--message=first")
    git(work, "remote", "add", "origin", str(origin))
    return work


@pytest.mark.parametrize(("open_ones", "wanted"), [("0", "pr create --base main"), ("1", "pr edit ci/pin-images")])
def test_a_patch_becomes_a_pull_request(
    script: Script, checkout: Path, tmp_path: Path, open_ones: str, wanted: str
) -> None:
    change = tmp_path / "temp" / "change"
    change.mkdir()
    (checkout / "release.yaml").write_text("version: 2\n", encoding="utf-8")
    (change / "change.patch").write_text(git(checkout, "diff", "--binary"), encoding="utf-8")
    (change / "body.md").write_text("The reason.\n", encoding="utf-8")
    git(checkout, "checkout", "--quiet", "release.yaml")
    variables = {"BASE": "main", "BRANCH": "ci/pin-images", "TITLE": "Pin the images", "GH_PULL_REQUESTS": open_ones}
    for _ in range(2):
        ended = script("propose.yml", "Open the pull request, or update the one that is open", **variables)
        assert ended.returncode == 0, ended.stderr
        assert calls(tmp_path)[-1].startswith(wanted)
        # The next run starts from a new checkout, and replaces the branch.
        git(checkout, "switch", "--quiet", "main")
        git(checkout, "branch", "-D", "ci/pin-images")
    origin = tmp_path / "origin"
    assert git(origin, "show", "ci/pin-images:release.yaml") == "version: 2\n"
    assert git(origin, "log", "--format=%s", "ci/pin-images").splitlines() == ["Pin the images", "first"]
    (change / "change.patch").write_text("", encoding="utf-8")
    before = calls(tmp_path)
    ended = script("propose.yml", "Open the pull request, or update the one that is open", BRANCH="b", TITLE="t")
    assert (ended.returncode, calls(tmp_path)) == (0, before), "an empty patch becomes nothing"
    assert git(origin, "branch", "--list", "b") == ""


def test_only_images_that_the_run_pushed_are_attested(script: Script, checkout: Path, tmp_path: Path) -> None:
    spec = checkout / "infra" / "spec"
    spec.mkdir(parents=True)
    pins = {
        name: {"tag": f"0.1.0-{letter}", "digest": f"sha256:{2 * letter}"}
        for name, letter in (("trainer", "a"), ("session", "c"), ("mlflow", "b"))
    }
    (spec / "release.yaml").write_text(json.dumps({"images": pins}), encoding="utf-8")
    known = "".join(f"{name} is already in the registry\n" for name in ("trainer: 0.1.0-a", "session: 0.1.0-c"))
    log = f"{known}mlflow: 0.1.0-b, sha256:bb written to release.yaml; commit it\n"
    (tmp_path / "temp" / "image.log").write_text(log, encoding="utf-8")
    ended = script("images.yml", "List what this run has built")
    assert ended.returncode == 0, ended.stderr
    name, _, value = (tmp_path / "output").read_text(encoding="utf-8").partition("=")
    assert name == "built"
    assert json.loads(value) == [{"name": "mlflow", "digest": "sha256:bb", "sbom": "mlflow-0.1.0-b.cdx.json"}]


@pytest.mark.parametrize(("tag", "status"), [("v0.0.9", 0), ("v0.1.0", 1)])
def test_a_version_is_released_once(script: Script, checkout: Path, tmp_path: Path, tag: str, status: int) -> None:
    (checkout / "infra" / "spec").mkdir(parents=True)
    (checkout / "infra" / "spec" / "release.yaml").write_text("platform: 0.1.0\n", encoding="utf-8")
    git(checkout, "tag", tag)
    ended = script("release.yml", "Read the version, and refuse one that is released")
    assert ended.returncode == status, ended.stderr
    if status:
        assert "v0.1.0 is released; raise `platform`" in ended.stdout
    else:
        assert (tmp_path / "output").read_text(encoding="utf-8") == "tag=v0.1.0\n"
