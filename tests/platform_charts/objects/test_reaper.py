"""The reaper that a stack installs: its CronJob, its role, whom it may reach, and what its image holds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from infra.lifecycle.image.recipes import RECIPES
from infra.lifecycle.image.source import IgnoreRules
from infra.packages.lock import read_lock
from infra.policy import evaluate
from infra.policy.graph import graph_from_recording
from infra.preview.recording import Recording, record
from infra.spec.manifest import Manifest
from infra.spec.settings import StackSettings
from infra.spec.settings.reaper import ReaperSettings
from platform_charts.objects.phases import platform_objects
from tests.engines.terraform import moto_server
from tests.infra.aws.graphs import settings_of
from tests.platform_charts.objects.samples import ENVIRONMENTS, FACTS, RELEASE, all_of, named, of_kind
from tests.platform_charts.objects.traffic import Pod, PolicySet

ROOT = Path(__file__).parents[3]
REAPER = Pod(namespace="reaper", labels={"app.kubernetes.io/name": "reaper"})
POD_IDENTITY, OUTSIDE, API_SERVICE = "169.254.170.23", "52.216.8.1", "172.20.0.1"
MOTO_ACCOUNT = "123456789012"


def with_reaper(**fields: Any) -> StackSettings:  # noqa: ANN401 - fields of any setting
    """`dev` with the reaper."""
    return settings_of("dev").model_copy(update={"reaper": ReaperSettings(**fields)})


def objects(**fields: Any) -> tuple[Manifest, ...]:  # noqa: ANN401
    """Every object of dev with the reaper."""
    phases = platform_objects(with_reaper(**fields), RELEASE, FACTS)
    return tuple(one for phase in phases.values() for one in phase)


def container_of(found: tuple[Manifest, ...]) -> Manifest:
    """The container of the CronJob."""
    job = named(found, "CronJob", "reaper")["spec"]["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    return dict(container)


def test_the_shipped_environments_have_none_of_it() -> None:
    for environment in ENVIRONMENTS:
        assert [one for one in all_of(environment) if "reaper" in json.dumps(one["metadata"])] == []


def test_it_looks_in_its_regions_and_refuses_another_account_than_the_stacks() -> None:
    assert container_of(objects())["args"] == [
        *("--yes", "--account", FACTS.account, "--region", "us-east-1", "--minutes", "40")
    ]
    found = objects(schedule="5 4 * * *", regions=("eu-west-1", "us-west-2"))
    assert named(found, "CronJob", "reaper")["spec"]["schedule"] == "5 4 * * *"
    assert container_of(found)["args"][3:7] == ["--region", "eu-west-1", "--region", "us-west-2"]


def test_it_reaches_aws_and_nothing_else() -> None:
    policies = PolicySet(of_kind(objects(), "NetworkPolicy"))
    assert policies.allows(REAPER, OUTSIDE, 443)
    assert policies.allows(REAPER, POD_IDENTITY, 80)
    for target, port in ((API_SERVICE, 80), (Pod(namespace="mlflow", labels={}), 5000), (OUTSIDE, 80)):
        assert not policies.allows(REAPER, target, port)


@pytest.fixture(scope="module")
def recording() -> Recording:
    """The graph of dev with the reaper."""
    return record(with_reaper())


def test_the_program_complies_with_every_rule(recording: Recording) -> None:
    assert [str(one) for one in evaluate(graph_from_recording(recording))] == []


def test_its_role_may_delete_nothing_that_is_tagged_as_another_kind_of_environment(recording: Recording) -> None:
    policy = recording.find("aws:iam/rolePolicy:RolePolicy", "reaper").properties["policy"]
    (statement,) = json.loads(policy)["Statement"]
    assert statement["Condition"] == {"StringNotEquals": {"aws:ResourceTag/kind": ["dev", "staging", "prod"]}}
    # AWS counts the inline policies of a role without white space (IAM user guide, "IAM and AWS STS quotas").
    assert len(json.dumps(statement, separators=(",", ":"))) < 10_240
    (association,) = [
        one
        for one in recording.of_type("aws:eks/podIdentityAssociation:PodIdentityAssociation")
        if one.properties["namespace"] == "reaper"
    ]
    assert association.properties["serviceAccount"] == "reaper"


@pytest.fixture(scope="module")
def in_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The modules of the stack that the image has."""
    folder, rules = tmp_path_factory.mktemp("image"), IgnoreRules((ROOT / ".dockerignore").read_text(encoding="utf-8"))
    for name in (one for one in RECIPES["mlflow"].context if one.startswith("infra/")):
        for source in (ROOT / name).rglob("*") if (ROOT / name).is_dir() else (ROOT / name,):
            path = source.relative_to(ROOT)
            if source.is_file() and rules.takes(path.as_posix()):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, folder / path)
    return folder


_RUN = """
import json, runpy, sys
try:
    runpy.run_module("infra.lifecycle", run_name="__main__", alter_sys=True)
finally:
    print(json.dumps([getattr(one, "__file__", "") or "" for one in list(sys.modules.values())]), file=sys.stderr)
"""


@pytest.mark.extended
def test_the_command_of_the_cron_job_runs_from_what_the_image_holds(in_image: Path) -> None:
    """Moto lacks some of the services, which the command must not take for empty ones."""
    container = container_of(objects())
    assert container["command"] == ["python", "-m", "infra.lifecycle", "reap"]
    arguments = [MOTO_ACCOUNT if one == FACTS.account else one for one in container["args"]]
    with moto_server() as url:
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            **{one["name"]: one["value"] for one in container["env"]},
            "PYTHONPATH": str(in_image),
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_MAX_ATTEMPTS": "1",
        }
        ran = subprocess.run(
            [sys.executable, "-P", "-c", _RUN, "reap", *arguments],
            cwd=in_image, env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert ran.stdout.startswith(f"no test clusters in account {MOTO_ACCOUNT}, us-east-1\n"), ran.stderr
    assert "not audited: " in ran.stdout
    assert ran.returncode == 1
    files = json.loads(ran.stderr.splitlines()[-1])
    assert [one for one in files if one.startswith(str(ROOT)) and ".venv" not in one] == []
    assert _distributions(files) <= {*(one.name for one in read_lock(ROOT / RECIPES["mlflow"].lock)), "setuptools"}


def _distributions(files: list[str]) -> set[str]:
    """Distributions that modules are of, by their normalized names."""
    tops = {
        one.partition("site-packages/")[2].partition("/")[0].partition(".")[0]
        for one in files
        if "site-packages/" in one
    }
    known = packages_distributions()
    return {name.lower().replace("_", "-").replace(".", "-") for top in tops for name in known.get(top, ())}
