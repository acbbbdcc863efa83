"""The program's entry point: configuration from Pulumi, and messages instead of tracebacks."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime.config import set_all_config

from infra.preview.recording import Recording, record, record_program
from infra.spec.release import ReleaseManifest, load_release
from infra.spec.settings.loading import ENVIRONMENTS, NAMESPACE
from platform_charts.charts.crds import PinnedCharts
from tests.infra.aws.graphs import settings_of
from tests.platform_charts.charts.archives import write_archives

ROOT = Path(__file__).resolve().parents[3]


def config_of(environment: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ENVIRONMENTS / f"Pulumi.{environment}.yaml").read_text(encoding="utf-8"))
    config: dict[str, Any] = document["config"]
    return config


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ReleaseManifest:
    """A release whose charts, made by the test, are in the archive folder."""
    release = write_archives(load_release(), tmp_path / "charts")
    monkeypatch.setattr("platform_charts.charts.archives.ARCHIVES", tmp_path / "charts")
    monkeypatch.setattr("infra.spec.release.load_release", lambda: release)
    monkeypatch.setattr("infra.aws.program.load_release", lambda: release)
    return release


def run(config: dict[str, Any], *, stack: str = "dev") -> Recording:
    """Run the program as the engine does, with its configuration as text."""

    def program() -> None:
        set_all_config({key: one if isinstance(one, str) else json.dumps(one) for key, one in config.items()})
        runpy.run_path(str(ROOT / "infra"), run_name="__main__")

    return record_program(program, stack=stack, account="111122223333", region="us-east-1")


def message_of(config: dict[str, Any], *, stack: str = "dev") -> str:
    with pytest.raises(pulumi.RunError) as caught:
        run(config, stack=stack)
    return str(caught.value)


def test_the_engines_configuration_gives_the_same_graph_as_the_file(fetched: ReleaseManifest) -> None:
    assert run(config_of("dev")) == record(settings_of("dev"), crds=PinnedCharts(fetched))


def test_pulumis_own_keys_are_ignored(fetched: ReleaseManifest) -> None:
    assert run({**config_of("dev"), "pulumi:tags": {"a": "b"}}) == record(
        settings_of("dev"), crds=PinnedCharts(fetched)
    )


def test_a_chart_with_another_hash_fails_the_program_before_it_registers_resources(
    fetched: ReleaseManifest, tmp_path: Path
) -> None:
    (tmp_path / "charts" / f"kueue-{fetched.charts['kueue'].version}.tgz").write_bytes(b"changed")
    away = {**config_of("dev"), f"{NAMESPACE}:mirrors": {"charts": "https://127.0.0.1:9/charts"}}
    message = message_of(away)
    assert "chart kueue" in message
    assert "mirrors.charts" in message


def test_a_misspelt_section_is_rejected_by_name() -> None:
    message = message_of({**config_of("dev"), f"{NAMESPACE}:budgte": {"monthly_usd": 1}})
    assert "Pulumi.dev.yaml: 1 wrong setting" in message
    assert "budgte: no such setting" in message
    assert "did you mean budget?" in message


def test_an_unused_key_is_rejected() -> None:
    assert "config.aws:region: unknown key" in message_of({**config_of("dev"), "aws:region": "us-east-1"})


def test_text_instead_of_a_mapping_is_rejected_by_name() -> None:
    assert "network = wide: must be a mapping" in message_of({**config_of("dev"), f"{NAMESPACE}:network": "wide"})


def test_another_environments_file_is_rejected() -> None:
    message = message_of(config_of("dev"), stack="prod")
    assert "environment.name = dev: must equal the stack's name, prod" in message
    assert "remedy: set environment.name: prod" in message


def test_prod_rejects_an_unresolved_release() -> None:
    message = message_of(config_of("prod"), stack="prod")
    assert "unresolved entries, which prod refuses" in message
    assert "make release-lock" in message


def test_the_program_imports_its_packages_from_any_working_directory(tmp_path: Path) -> None:
    """Only the folder is on sys.path; without configuration the program fails with its own message."""
    ended = subprocess.run(
        [sys.executable, "-I", "-c", f"import runpy; runpy.run_path({str(ROOT / 'infra')!r}, run_name='__main__')"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pulumi.errors.RunError: Pulumi.stack.yaml: " in ended.stderr
    assert "environment: is required" in ended.stderr


def test_the_project_file_points_to_the_program_and_the_environments() -> None:
    project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))
    assert project["name"] == NAMESPACE
    assert (ROOT / project["main"] / "__main__.py").is_file()
    assert ROOT / project["stackConfigDir"] == ENVIRONMENTS
    assert project["runtime"] == {"name": "python", "options": {"virtualenv": ".venv"}}
