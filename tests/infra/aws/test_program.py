"""The whole graph: previews, outputs, and what a change of the settings changes."""

from __future__ import annotations

import json

import pytest

from infra.preview.recording import UNKNOWN, Recording, Resource
from infra.spec.catalog import load_catalog
from infra.spec.errors import SettingsError
from infra.spec.outputs import KEPT_RELEASE, SCHEMA_VERSION, StackOutputs, check_outputs, read_outputs
from infra.spec.release import load_release
from tests.infra.aws.graphs import ENVIRONMENTS, aws_resources, graph, preview, sample, settings_of, tags_of, varied


def options(one: Resource) -> tuple[object, ...]:
    """What a preview knows of a resource besides its properties."""
    return one.urn, one.protect, one.retain_on_delete, one.ignore_changes, one.dependencies


def agrees(known: object, final: object) -> bool:
    """Whether what a preview knows of a value is what it becomes."""
    if isinstance(known, dict) and isinstance(final, dict):
        return known.keys() == final.keys() and all(agrees(known[key], final[key]) for key in known)
    if isinstance(known, list) and isinstance(final, list):
        return len(known) == len(final) and all(map(agrees, known, final))
    return known is UNKNOWN or known == final


def test_a_preview_has_the_resources_options_and_known_values_of_the_update() -> None:
    for environment in ENVIRONMENTS:
        for one, final in zip(preview(environment).resources, graph(environment).resources, strict=True):
            assert options(one) == options(final), environment
            assert agrees(one.properties, final.properties), one.urn


def test_outputs_satisfy_the_contract_and_hold_no_secret() -> None:
    for environment in ENVIRONMENTS:
        recording = graph(environment)
        outputs = read_outputs(recording.outputs, file="recording")
        assert set(recording.outputs) == set(StackOutputs.model_fields) - {"is_recorded", "digests"}
        assert not outputs.is_recorded
        check_outputs(outputs, load_release(), catalog=load_catalog())
        assert outputs.environment == settings_of(environment).environment.name
        assert recording.secret_outputs == frozenset()


def test_without_a_team_or_a_budget_there_is_no_trainer_and_no_budget() -> None:
    recording = varied({"teams": []})
    assert "trainer" not in recording.outputs["roles"]
    assert recording.of_type("aws:budgets/budget:Budget") == ()


def test_a_preview_knows_every_output_that_no_resource_computes() -> None:
    outputs, known = preview("prod").outputs, graph("prod").outputs
    computed = {"cluster", "network", "registries", "storage", "roles", "teams"}
    final = {name: known[name] for name in known.keys() - computed}
    assert {name: outputs[name] for name in outputs.keys() - computed} == final
    assert outputs["cluster"] == {**known["cluster"], "endpoint": UNKNOWN, "certificate_authority": UNKNOWN}
    assert outputs["storage"]["checkpoint_bucket"] == known["storage"]["checkpoint_bucket"]
    assert outputs["roles"] == dict.fromkeys(known["roles"], UNKNOWN)
    subnets = [UNKNOWN] * len(known["network"]["private_subnets"])
    assert outputs["network"] == {"private_subnets": subnets, "node_security_group": UNKNOWN}
    assert outputs["teams"] == [{**team, "efs_access_point": UNKNOWN} for team in known["teams"]]


def test_outputs_that_break_the_contract_fail_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.aws.exports.SCHEMA_VERSION", 2)
    with pytest.raises(SettingsError, match="stack outputs: 1 wrong setting\n  schema_version = 2: must be one of 1"):
        varied({})


def test_an_update_that_takes_a_step_back_leaves_the_release_of_the_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = {"platform": "9.9.9", "release": graph("dev").outputs["release"]}
    monkeypatch.setenv(KEPT_RELEASE, json.dumps(newer))
    outputs = varied({}).outputs
    assert {name: outputs[name] for name in newer} == newer
    assert outputs["schema_version"] == SCHEMA_VERSION


def logical_names(recording: Recording) -> list[str]:
    return [f"{one.type} {one.name}" for one in sorted(recording.resources, key=lambda one: (one.type, one.name))]


def test_logical_names_contain_neither_environment_nor_account() -> None:
    elsewhere = {
        "environment.name": "other",
        "aws.allowed_accounts": ["999988887777"],
        "cluster.admin_roles": ["arn:aws:iam::999988887777:role/admin"],
    }
    assert logical_names(varied(elsewhere)) == logical_names(sample())


def test_a_release_changes_no_launch_template(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sample()
    newer = load_release().model_copy(update={"platform": "9.9.9"})
    monkeypatch.setattr("infra.aws.program.load_release", lambda: newer)
    after = varied({})
    kind = "aws:ec2/launchTemplate:LaunchTemplate"
    assert tags_of(after)["version"] == "9.9.9"
    assert [one.properties for one in after.of_type(kind)] == [one.properties for one in before.of_type(kind)]


def test_another_team_adds_a_trainer_and_an_access_point_only() -> None:
    two = varied({"teams": [{"name": "research", "gpus": {"t4": 4, "h100": 16}}, {"name": "vision"}]})
    before = {resource.urn: resource.properties for resource in aws_resources(sample())}
    after = {resource.urn: resource.properties for resource in aws_resources(two)}
    assert {urn.rpartition("::")[2] for urn in after.keys() - before.keys()} == {"vision-trainer", "team-vision"}
    changed = [urn for urn in before if before[urn] != after[urn]]
    assert {urn.rpartition("::")[2] for urn in changed} == {"trainer", "efs-csi"}
