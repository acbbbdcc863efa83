"""The workflows, the pipeline and the hooks that a team gets with the repository are safe, complete and in step with the project."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.make_commands import make_commands, problems_of
from tests.docs.programs import check_with
from tests.docs.workflows import (
    GITHUB,
    GITLAB,
    ROOT,
    WORKFLOWS,
    Job,
    commands_of,
    jobs,
    load,
    make_commands_of,
    pipeline_jobs,
)
from tests.makefile import make

GUIDE = ROOT / "docs" / "CI.md"
WRITES = {
    "drift.yml compare": {"id-token"},
    "drift.yml report": {"issues"},
    "images.yml attest": {"attestations", "id-token"},
    "images.yml build": {"id-token"},
    "images.yml pin": {"contents", "pull-requests"},
    "preview.yml comment": {"pull-requests"},
    "preview.yml plan": {"id-token"},
    "propose.yml propose": {"contents", "pull-requests"},
    "reaper.yml reap": {"id-token"},
    "release.yml propose": {"contents", "pull-requests"},
    "release.yml tag": {"contents"},
    "versions.yml propose-locks": {"contents", "pull-requests"},
    "versions.yml propose-release": {"contents", "pull-requests"},
    "versions.yml release": {"id-token"},
}
"""What the token of a job may write, where it may write anything."""

WITHOUT_DIGEST = {"pulumi/pulumi-python-3.12"}
"""Images of the pipeline whose digest Renovate has yet to add."""

_USES = re.compile(r"^\s*(?:- )?uses: (?P<action>\S+?)(?:@(?P<version>\S+))?(?: # (?P<comment>.*))?$", re.MULTILINE)
_WITH_STEPS = [job for job in jobs() if job.steps]


def name_of(file: Path) -> str:
    """The name of a file in a test's name."""
    return file.name


def title_of(job: Job) -> str:
    """The name of a job in a test's name."""
    return job.title


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=name_of)
def test_a_workflow_has_a_name_a_trigger_and_no_permissions_of_its_own(workflow: Path) -> None:
    content = load(workflow)
    assert content["name"] == workflow.stem
    assert content["permissions"] == {}
    assert {"on", "jobs"} <= {*content}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=name_of)
def test_runs_of_a_workflow_do_not_overlap_unless_others_call_it(workflow: Path) -> None:
    content = load(workflow)
    assert ("concurrency" in content) == (set(content["on"]) != {"workflow_call"})


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=name_of)
def test_every_action_is_pinned_to_a_commit_and_names_its_version(workflow: Path) -> None:
    for used in _USES.finditer(workflow.read_text(encoding="utf-8")):
        if used["action"].startswith("./"):
            assert (ROOT / used["action"]).is_file(), used[0]
        else:
            assert re.fullmatch(r"[0-9a-f]{40}", used["version"] or ""), used[0]
            assert re.fullmatch(r"v\d+\.\d+\.\d+", used["comment"] or ""), used[0]


def test_all_workflows_use_one_version_of_an_action() -> None:
    used = [match for file in WORKFLOWS for match in _USES.finditer(file.read_text(encoding="utf-8"))]
    pins = {(match["action"], match["version"], match["comment"]) for match in used}
    assert len(pins) == len({action for action, _, _ in pins})
    assert len(pins) > 5


def test_a_job_may_write_no_more_than_is_listed() -> None:
    found = {}
    for job in jobs():
        permissions = job.content["permissions"]
        assert {*permissions.values()} <= {"read", "write"}, job.title
        if writes := {scope for scope, access in permissions.items() if access == "write"}:
            found[job.title] = writes
    assert found == WRITES


def test_a_job_that_runs_code_of_the_project_may_write_nothing_in_the_repository() -> None:
    running = [job for job in jobs() if job.runs_the_project]
    assert len(running) > 5
    assert [job.title for job in running if WRITES.get(job.title, set()) - {"id-token"}] == []


@pytest.mark.parametrize("job", _WITH_STEPS, ids=title_of)
def test_a_job_has_a_time_limit(job: Job) -> None:
    assert 0 < int(job.content["timeout-minutes"]) <= 180


@pytest.mark.parametrize("job", _WITH_STEPS, ids=title_of)
def test_a_script_contains_no_expression_that_others_may_write(job: Job) -> None:
    assert [script for script in job.scripts if "${{" in script] == []


@pytest.mark.parametrize("job", _WITH_STEPS, ids=title_of)
def test_a_checkout_leaves_no_credentials_behind(job: Job) -> None:
    for step in job.uses("actions/checkout"):
        assert step["with"]["persist-credentials"] == "false"
        assert "ref" not in step["with"]


def test_no_workflow_runs_with_the_rights_of_main_on_the_code_of_a_pull_request() -> None:
    assert {trigger for file in WORKFLOWS for trigger in load(file)["on"]} <= {
        "push",
        "pull_request",
        "schedule",
        "workflow_call",
        "workflow_dispatch",
    }


def test_a_role_is_a_variable_and_its_job_has_an_environment_that_limits_who_gets_it() -> None:
    assuming = [job for job in jobs() if job.uses("aws-actions/configure-aws-credentials")]
    assert len(assuming) == 5
    for job in assuming:
        (step,) = job.uses("aws-actions/configure-aws-credentials")
        assert set(step["with"]) <= {"role-to-assume", "aws-region", "role-duration-seconds"}
        assert re.fullmatch(r"\$\{\{ vars\.AWS_\w+_ROLE \}\}", step["with"]["role-to-assume"])
        assert job.content["environment"]
        assert re.match(r"vars\.\w+ != ''", job.content["if"])


def test_there_is_no_static_key() -> None:
    files = [GITLAB, *(file for file in GITHUB.rglob("*") if file.is_file())]
    pattern = re.compile(r"access-key|ACCESS_KEY|AKIA|secrets\.|session-token", re.IGNORECASE)
    assert [file for file in files if pattern.search(file.read_text(encoding="utf-8"))] == []


def test_a_pull_request_of_a_fork_gets_no_role() -> None:
    (plan,) = [job for job in jobs() if job.title == "preview.yml plan"]
    assert "head.repo.full_name == github.repository" in plan.content["if"]
    assert "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID" in pipeline_jobs()["preview"]["rules"][0]["if"]


@pytest.mark.parametrize("typed", make_commands_of(script for job in jobs() for script in job.scripts))
def test_a_make_command_of_a_workflow_exists_with_its_variables(typed: str) -> None:
    assert [*problems_of(typed)] == []


@pytest.mark.parametrize(
    "typed", make_commands_of(line for job in pipeline_jobs().values() for line in job.get("script", []))
)
def test_a_make_command_of_the_pipeline_exists_with_its_variables(typed: str) -> None:
    assert [*problems_of(typed)] == []


@pytest.mark.parametrize("typed", make_commands(GUIDE.read_text(encoding="utf-8")))
def test_a_make_command_of_the_guide_exists_with_its_variables(typed: str) -> None:
    assert [*problems_of(typed)] == []


def test_the_images_of_the_pipeline_are_pinned() -> None:
    named = [load(GITLAB)["default"]["image"], *(job["image"] for job in pipeline_jobs().values() if "image" in job)]
    images = [re.fullmatch(r"([\w./-]+):[\w.-]+(@sha256:[0-9a-f]{64})?", image) for image in named]
    assert len(images) == 2
    assert {image[1] for image in images if image and image[2] is None} <= WITHOUT_DIGEST
    assert None not in images


def test_the_pipeline_lints_tests_previews_and_builds_within_a_time_limit() -> None:
    content = load(GITLAB)
    assert {*pipeline_jobs()} == {"lint", "test", "preview", "images"}
    assert {job["stage"] for job in pipeline_jobs().values()} == {*content["stages"]}
    assert content["default"]["timeout"]


def test_the_pulumi_cli_is_the_version_of_its_sdk() -> None:
    lock = (ROOT / "requirements-infra.lock").read_text(encoding="utf-8")
    (version,) = re.findall(r"^pulumi==(\S+)", lock, re.MULTILINE)
    installing = [step for job in jobs() for step in job.uses("pulumi/actions")]
    assert {step["with"]["pulumi-version"] for step in installing} == {version}
    assert pipeline_jobs()["preview"]["image"].partition("@")[0].endswith(f":{version}")


def test_an_image_is_attested_only_by_the_run_that_pushed_it() -> None:
    """The workflow recognizes other images by what the command says."""
    (build,) = [job for job in jobs() if job.title == "images.yml build"]
    (told,) = {found for script in build.scripts for found in re.findall(r'grep -q "\^\$image: \.\* (.*?)"', script)}
    source = (ROOT / "infra/lifecycle/image/push.py").read_text(encoding="utf-8")
    assert f'print_line(f"{{build.image}}: {{build.tag}} {told}")' in source


def test_the_guide_names_every_variable_and_no_other() -> None:
    texts = [file.read_text(encoding="utf-8") for file in WORKFLOWS]
    used = {name for text in texts for name in re.findall(r"\bvars\.(\w+)", text)}
    told = set(re.findall(r"^\| `([A-Z_]+)`", GUIDE.read_text(encoding="utf-8"), re.MULTILINE))
    assert told == used


def test_the_guide_names_every_workflow() -> None:
    told = set(re.findall(r"^\| `([a-z]+)` \|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE))
    assert told == {file.stem for file in WORKFLOWS}


def test_the_hooks_run_what_make_lint_runs() -> None:
    planned = make("--dry-run", "lint")
    assert planned.returncode == 0, planned.stderr
    wanted = [line for line in planned.stdout.splitlines() if line.startswith(".venv/")]
    (repository,) = load(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == wanted
    assert {(hook["language"], hook["pass_filenames"]) for hook in repository["hooks"]} == {("system", "false")}


@pytest.mark.parametrize("form", ["bug.yml", "feature.yml"])
def test_a_form_has_fields_with_names_of_their_own(form: str) -> None:
    content = load(GITHUB / "ISSUE_TEMPLATE" / form)
    fields = [field for field in content["body"] if field["type"] != "markdown"]
    names = [field["id"] for field in fields]
    assert content["name"]
    assert content["description"]
    assert len({*names}) == len(names) > 2
    assert all(field["attributes"]["label"] for field in fields)


def test_commands_are_found_in_a_script() -> None:
    script = (
        'set -e\nif make up ENV="$NAME" 2>&1 | tee log; then\n  make test \\\n    LONG="$((N % 4 + 1))/4" || exit 1\nfi'
    )
    assert make_commands_of(iter([script])) == ['make test LONG="x/4"', 'make up ENV="x"']
    assert "tee log" in [*commands_of(script)]


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
        ("actionlint", [], "go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"),
        ("zizmor", ["--offline", "--quiet", "--config", ".github/zizmor.yml"], "make env FOR=dev"),
    ],
)
def test_the_checkers_of_workflows_find_nothing(program: str, arguments: list[str], enable: str) -> None:
    assert check_with(program, [*arguments, *map(str, WORKFLOWS)], enable=enable) == ""


def test_a_script_is_valid_shell() -> None:
    for job in jobs():
        for script in job.scripts:
            ended = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
            assert ended.returncode == 0, f"{job.title}: {shlex.quote(script)}: {ended.stderr}"
