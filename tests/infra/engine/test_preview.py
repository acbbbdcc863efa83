"""Pulumi's engine previews every environment from its stack configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest
from pulumi import automation

from infra.preview.recording import record
from infra.spec.release_rules import ROOT
from infra.spec.settings.loading import PROJECT
from tests.engines.pulumi_engine import engine_environment, find_engine
from tests.infra.aws.graphs import settings_of
from tests.infra.spec.samples import SHIPPED


@pytest.fixture(autouse=True)
def _engine() -> None:
    find_engine()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("environment", [name for name in SHIPPED if name != "prod"])
def test_a_preview_creates_every_recorded_resource(environment: str, tmp_path: Path) -> None:
    settings = settings_of(environment)
    (account, *_), region = settings.aws.allowed_accounts, settings.aws.region
    with engine_environment(tmp_path, account=account, region=region) as variables:
        workspace = automation.LocalWorkspace(work_dir=str(ROOT), env_vars=dict(variables))
        stack = automation.Stack.create_or_select(environment, workspace)
        found = stack.preview()
    assert found.change_summary == {automation.OpType.CREATE: len(record(settings).resources)}


def test_prod_rejects_an_unresolved_release(tmp_path: Path) -> None:
    settings = settings_of("prod")
    account = settings.aws.allowed_accounts[0]
    with engine_environment(tmp_path, account=account, region=settings.aws.region) as variables:
        workspace = automation.LocalWorkspace(work_dir=str(ROOT), env_vars=dict(variables))
        stack = automation.Stack.create_or_select("prod", workspace)
        with pytest.raises(automation.CommandError, match="unresolved"):
            stack.preview()
    assert workspace.project_settings().name == PROJECT
