"""The entry that the engine runs: configuration as Pulumi hands it over, and messages instead of tracebacks."""

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

from infra.recording import Recording, record_program
from infra.settings.loading import ENVIRONMENTS, NAMESPACE
from tests.infra.components.graphs import graph

ROOT = Path(__file__).resolve().parents[3]


def config_of(environment: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ENVIRONMENTS / f"Pulumi.{environment}.yaml").read_text(encoding="utf-8"))
    config: dict[str, Any] = document["config"]
    return config


def run(config: dict[str, Any], *, stack: str = "dev") -> Recording:
    """Run the program's folder as the engine does, with its configuration as text."""

    def program() -> None:
        set_all_config({key: one if isinstance(one, str) else json.dumps(one) for key, one in config.items()})
        runpy.run_path(str(ROOT / "infra"), run_name="__main__")

    return record_program(program, stack=stack, account="111122223333", region="us-east-1")


def message_of(config: dict[str, Any], *, stack: str = "dev") -> str:
    with pytest.raises(pulumi.RunError) as caught:
        run(config, stack=stack)
    return str(caught.value)


def test_the_engines_configuration_makes_the_graph_of_the_file() -> None:
    assert run(config_of("dev")) == graph("dev")


def test_pulumis_own_keys_are_left_alone() -> None:
    assert run({**config_of("dev"), "pulumi:tags": {"a": "b"}}) == graph("dev")


def test_a_misspelt_section_is_refused_by_name() -> None:
    message = message_of({**config_of("dev"), f"{NAMESPACE}:budgte": {"monthly_usd": 1}})
    assert "Pulumi.dev.yaml: 1 wrong setting" in message
    assert "budgte: no such setting" in message
    assert "did you mean budget?" in message


def test_a_key_that_nothing_reads_is_refused() -> None:
    assert "config.aws:region: nothing reads it" in message_of({**config_of("dev"), "aws:region": "us-east-1"})


def test_text_where_settings_are_due_is_refused_by_name() -> None:
    assert "network = 'wide': must be a mapping" in message_of({**config_of("dev"), f"{NAMESPACE}:network": "wide"})


def test_a_stack_with_another_environments_file_is_refused() -> None:
    message = message_of(config_of("dev"), stack="prod")
    assert "environment.name = dev: the stack is prod" in message
    assert "remedy: set environment.name: prod" in message


def test_prod_is_refused_while_the_release_is_unresolved_and_before_anything_is_made() -> None:
    message = message_of(config_of("prod"), stack="prod")
    assert "unresolved entries, which prod refuses" in message
    assert "make release-lock" in message


def test_the_program_finds_its_packages_from_wherever_the_engine_runs_it(tmp_path: Path) -> None:
    """The folder alone is on the module path; without a configuration the program then ends with its own message."""
    ended = subprocess.run(
        [sys.executable, "-I", "-c", f"import runpy; runpy.run_path({str(ROOT / 'infra')!r}, run_name='__main__')"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pulumi.errors.RunError: Pulumi.stack.yaml: " in ended.stderr
    assert "environment: is required" in ended.stderr


def test_the_project_file_names_this_program_and_these_environments() -> None:
    project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))
    assert project["name"] == NAMESPACE
    assert (ROOT / project["main"] / "__main__.py").is_file()
    assert ROOT / project["stackConfigDir"] == ENVIRONMENTS
    assert project["runtime"] == {"name": "python", "options": {"virtualenv": ".venv"}}


def test_names_and_user_data_are_had_without_pulumi() -> None:
    program = "import sys, infra.naming, infra.user_data; print('pulumi' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"
