"""The stack's reaper in the settings: where it may be installed."""

from __future__ import annotations

import pytest

from infra.lifecycle.leftovers.policy import reaper_actions_text
from infra.spec.errors import SettingsError
from infra.spec.reaper_actions import ACTIONS_FILE, reaper_actions
from infra.spec.settings import from_mapping
from tests.infra.spec.samples import Tree, changed, dev_sections, prod_sections

TEST = {"environment.kind": "test", "environment.expires": "2030-01-31T00:00:00Z"}


def test_wrong_settings_are_refused_by_name() -> None:
    cases: list[tuple[Tree, Tree, str]] = [
        (prod_sections(), {}, "it belongs in no account of production"),
        (changed(dev_sections(), TEST), {}, "would be removed with its own test cluster"),
        (dev_sections(), {"regions": ["us-east-9"]}, "reaper.regions.0 = us-east-9: unknown region"),
        (dev_sections(), {"schedule": "hourly"}, "reaper.schedule = hourly: must be a schedule of five fields in UTC"),
        (dev_sections(), {"minutes": 5}, "reaper.minutes: no such setting"),
    ]
    for sections, reaper, said in cases:
        with pytest.raises(SettingsError) as refusal:
            from_mapping(changed(sections, {"reaper": reaper}), file="sample")
        assert said in str(refusal.value), sections


def test_the_actions_of_its_role_are_those_that_the_kinds_of_resources_need() -> None:
    assert ACTIONS_FILE.read_text(encoding="utf-8") == reaper_actions_text()
    assert {"eks:DeleteCluster", "ec2:DeleteVpc", "sts:GetCallerIdentity"} < set(reaper_actions())
