"""The commands: output and exit status."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from moto import mock_aws

from infra.lifecycle.cli import main
from infra.lifecycle.commands import refresh
from infra.lifecycle.stack import pulumi_cli
from infra.spec.protection import EnvironmentKind
from infra.spec.release import RELEASE_FILE, load_release
from infra.spec.release_rules import ROOT, findings, read_project
from infra.spec.settings import load_environment
from infra.spec.settings.loading import ENVIRONMENTS
from tests.infra.aws.graphs import graph
from tests.infra.lifecycle.release.mirror import add_image, add_release, sources
from tests.infra.lifecycle.release.servers import served
from tests.infra.lifecycle.release.test_survey import KNOWN_AWS, KNOWN_WEB
from tests.infra.spec.samples import changed
from training import cli as training_cli

IMPORTS = """
import sys
import infra.lifecycle.cli
print(sorted({name.partition(".")[0] for name in sys.modules} & {"pulumi", "pulumi_aws", "boto3", "matplotlib"}))
"""

PULUMI = """#!/bin/sh
echo "$@" >> "$PULUMI_CALLS"
[ "$1" = stack ] && { echo "no stack named dev" >&2; exit 255; }
exit 4
"""


@pytest.fixture
def no_pulumi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def pulumi_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file in which a fake `pulumi`, which fails, records its arguments."""
    binary = tmp_path / "bin" / "pulumi"
    binary.parent.mkdir()
    binary.write_text(PULUMI)
    binary.chmod(0o755)
    calls = tmp_path / "calls"
    monkeypatch.setenv("PULUMI_CALLS", str(calls))
    monkeypatch.setenv("PATH", f"{binary.parent}:/usr/bin:/bin")
    return calls


def test_cost_prints_items_with_the_date_of_their_price_and_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--env", "prod"]) == 0
    printed = capsys.readouterr().out
    assert "nodes h100, p5.48xlarge" in printed
    assert "2026-07-20" in printed
    assert "unresolved" not in printed


def test_release_check_lists_unresolved_entries_and_prod_refuses_them(capsys: pytest.CaptureFixture[str]) -> None:
    unresolved = load_release().unresolved()
    assert main(["release-check"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name}\n" in printed for name in unresolved)
    assert main(["release-check", "--env", "prod"]) == (3 if unresolved else 0)
    assert ("which prod refuses" in capsys.readouterr().err) == bool(unresolved)


def test_staleness_lists_entries_older_than_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["staleness", "--days", "1000000"]) == 0
    printed = capsys.readouterr().out
    assert "addons.coredns: never" in printed
    assert "days ago" not in printed


def test_outputs_of_a_stack_of_this_release_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(graph("prod").outputs))
    assert main(["outputs", "--env", "prod", "--file", str(file)]) == 0
    assert "cluster rtp-prod, Kubernetes 1.35" in capsys.readouterr().out


def test_invalid_outputs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, good = tmp_path / "outputs.json", json.dumps(graph("dev").outputs)
    for content, status, message in (
        (json.dumps(changed(json.loads(good), {"cluster.endpoint": "http://x"})), 2, "cluster.endpoint"),
        (json.dumps(changed(json.loads(good), {"platform": "0.0.9"})), 3, "the stack is 0.0.9, this checkout is"),
        ("nothing", 2, f"{file}: not JSON"),
        (b"\xff\xfe\x00", 2, f"{file}: not JSON"),
        ("[]", 2, f"{file}: must be a JSON object"),
    ):
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        assert main(["outputs", "--env", "dev", "--file", str(file)]) == status, message
        assert message in capsys.readouterr().err


@pytest.mark.extended
@pytest.mark.usefixtures("no_pulumi")
def test_recorded_outputs_need_no_pulumi_and_render_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "outputs.json"
    assert main(["outputs", "--env", "dev", "--recorded"]) == 0
    assert json.loads(capsys.readouterr().out)["environment"] == "dev"
    recorded = ["outputs", "--env", "dev", "--recorded", "--file", str(file)]
    assert main(recorded) == 0
    assert json.loads(file.read_text()) == {
        **json.loads(json.dumps(graph("dev").outputs)),
        "digests": {},
        "is_recorded": True,
    }
    assert f"{file}: outputs that dev would export" in capsys.readouterr().out
    assert main(recorded) == 0, "a recording of the same environment is replaced"
    capsys.readouterr()
    job = ["job", "--env", "dev", "--team", "research", "--num-workers", "2", "--use-gpu", "--outputs", str(file)]
    assert training_cli.main(job) == 0
    assert "kind: RayJob" in capsys.readouterr().out


def test_recorded_outputs_do_not_replace_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "outputs.json"
    monkeypatch.setattr("infra.lifecycle.stack.outputs_file.record", lambda _: graph("dev"))
    for content in (
        "my notes",
        json.dumps({"cluster": "mine"}),
        json.dumps({"environment": "dev", "is_recorded": False}),
        json.dumps({"environment": "prod", "is_recorded": True}),
    ):
        file.write_text(content)
        assert main(["outputs", "--env", "dev", "--recorded", "--file", str(file)]) == 3, content
        assert f"{file}: exists and is not a recording of dev" in capsys.readouterr().err
        assert file.read_text() == content


@pytest.mark.usefixtures("no_pulumi")
def test_a_missing_pulumi_is_named_before_any_request(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("preview", "up", "destroy", "outputs"):
        assert main([command, "--env", "dev"]) == 3, command
        assert "no `pulumi` on PATH" in capsys.readouterr().err


def test_pulumis_message_is_printed(pulumi_calls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["outputs", "--env", "dev"]) == 1
    assert "pulumi stack output: no stack named dev" in capsys.readouterr().err
    assert pulumi_calls.read_text() == f"stack output --json --cwd {ROOT} --stack dev\n"


def test_up_runs_with_the_policy_pack_and_returns_pulumis_exit_status(pulumi_calls: Path) -> None:
    assert pulumi_cli.run("up", environment="dev", is_confirmed=True) == 4
    assert pulumi_calls.read_text() == f"up --cwd {ROOT} --stack dev --policy-pack infra/policy --yes\n"


def test_pulumi_does_not_run_in_a_disallowed_account(
    pulumi_calls: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with mock_aws():
        for command in ("preview", "up", "destroy"):
            assert main([command, "--env", "dev"]) == 3, command
            assert "AWS account 123456789012 may not hold environment dev" in capsys.readouterr().err
    assert not pulumi_calls.exists()


@pytest.fixture
def release_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A copy of the manifest for release-lock to write, and sources that have it and newer versions."""
    copy = tmp_path / "release.yaml"
    shutil.copy(RELEASE_FILE, copy)
    efa = {"version": "v0.6.0", "appVersion": "0.5.21"}
    with served() as site:
        add_release(site, kueue={"version": "0.20.0"}, aws_efa_k8s_device_plugin=efa)
        add_image(site, load_release().images["aws-efa-k8s-device-plugin"], "v0.5.21")
        monkeypatch.setattr(refresh, "_sources", lambda _options: sources(site, KNOWN_AWS, KNOWN_WEB))
        monkeypatch.setattr(refresh, "RELEASE_FILE", copy)
        yield copy


def test_release_lock_upgrades_what_no_rule_holds_back(release_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["release-lock"]) == 1, "our own images and downloads stay unresolved"
    printed = capsys.readouterr().out
    assert "charts.aws-efa-k8s-device-plugin v0.6.0; `make release-lock UPGRADE=1` writes them" in printed
    assert "0.20.0" in printed
    kueue = load_release(release_file).charts["kueue"]
    assert (kueue.version, kueue.sha256) == ("0.19.2", "a" * 64)
    assert load_release(release_file).charts["aws-efa-k8s-device-plugin"].version == "v0.5.30"
    assert load_release(release_file).kubernetes.as_of == datetime.now(UTC).date()
    assert main(["release-lock", "--upgrade"]) == 1
    assert "upgraded: charts.aws-efa-k8s-device-plugin v0.6.0" in capsys.readouterr().out
    written = load_release(release_file)
    chart, image = written.charts["aws-efa-k8s-device-plugin"], written.images["aws-efa-k8s-device-plugin"]
    assert (chart.version, chart.sha256, chart.app_version, image.tag) == ("v0.6.0", "b" * 64, "0.5.21", "v0.5.21")
    assert "stable/aws-efa" not in str(chart.source), "the old version's source"
    assert written.charts["kueue"].version == "0.19.2"
    assert findings(written, project=read_project()) == ()


def test_help_and_cost_import_neither_pulumi_nor_boto3_nor_matplotlib() -> None:
    run = subprocess.run([sys.executable, "-c", IMPORTS], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


ENVIRONMENT = ["test-environment", "--owner", "ops@example.com", "--account", "111122223333"]


@pytest.fixture
def environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ENVIRONMENTS, tmp_path / "environments")
    monkeypatch.setattr("infra.lifecycle.disposable.stack.ENVIRONMENTS", tmp_path / "environments")
    monkeypatch.setattr(load_environment, "__kwdefaults__", {"directory": tmp_path / "environments"})
    return tmp_path / "environments"


def test_a_test_environment_is_written_once_and_not_with_an_invalid_name(
    environments: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*ENVIRONMENT, "--name", "test-4711", "--hours", "2"]
    assert main(command) == 0
    settings = load_environment("test-4711")
    assert settings.environment.kind is EnvironmentKind.TEST
    assert settings.environment.expires is not None
    assert timedelta(hours=1) < settings.environment.expires - datetime.now(UTC) <= timedelta(hours=2)
    assert main(command) == 2
    assert "test-4711.yaml: exists" in capsys.readouterr().err
    before = set(environments.parent.rglob("*"))
    for name in ("Test_1", "../test", "test-\nkind: prod"):
        assert main([*ENVIRONMENT, "--name", name]) == 2, name
    assert set(environments.parent.rglob("*")) == before
