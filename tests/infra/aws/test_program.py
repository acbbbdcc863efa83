"""The whole graph: provider, tags, dependencies, protection and outputs."""

from __future__ import annotations

import json

import pytest

from infra.policy.rules.protection import STATEFUL_TYPES
from infra.policy.tokens import LUSTRE
from infra.preview.recording import UNKNOWN, Recording, Resource
from infra.spec.catalog import load_catalog
from infra.spec.errors import SettingsError
from infra.spec.outputs import KEPT_RELEASE, SCHEMA_VERSION, StackOutputs, check_outputs, read_outputs
from infra.spec.protection import protection_of
from infra.spec.release import load_release
from infra.spec.settings.stack import StackSettings
from tests.infra.aws.graphs import (
    ENVIRONMENTS,
    ancestors,
    aws_resources,
    depends_on,
    graph,
    preview,
    sample,
    settings_of,
    tags_of,
    varied,
)

every_environment = pytest.mark.parametrize("environment", ENVIRONMENTS)


@every_environment
def test_all_aws_resources_use_one_provider(environment: str) -> None:
    recording = graph(environment)
    provider = recording.find("pulumi:providers:aws", "aws")
    assert {one.provider for one in aws_resources(recording)} == {provider.urn}
    assert recording.of_type("pulumi:providers:aws") == (provider,)


@every_environment
def test_the_provider_has_the_allowed_accounts(environment: str) -> None:
    provider = graph(environment).find("pulumi:providers:aws", "aws").properties
    assert json.loads(provider["allowedAccountIds"]) == list(settings_of(environment).aws.allowed_accounts)
    assert provider["region"] == settings_of(environment).aws.region


@every_environment
def test_default_tags_identify_stack_and_owner(environment: str) -> None:
    settings, tags = settings_of(environment), tags_of(graph(environment))
    name = settings.environment.name
    assert tags["stack"] == f"ray-train-platform/{name}"
    assert (tags["environment"], tags["kind"]) == (name, settings.environment.kind)
    assert (tags["owner"], tags["version"]) == (settings.environment.owner, load_release().platform)


def test_only_test_environments_have_an_expiry_tag() -> None:
    assert tags_of(graph("test"))["expires"] == "2030-01-31T00:00:00+00:00"
    assert "expires" not in tags_of(graph("prod"))


@every_environment
def test_every_resource_belongs_to_a_component(environment: str) -> None:
    recording = graph(environment)
    stray = [one.urn for one in aws_resources(recording) if not ancestors(recording, one)]
    assert stray == []


@every_environment
def test_a_preview_has_the_same_resources_and_options(environment: str) -> None:
    def options(one: Resource) -> tuple[object, ...]:
        return one.urn, one.protect, one.retain_on_delete, one.ignore_changes, one.dependencies

    assert list(map(options, preview(environment).resources)) == list(map(options, graph(environment).resources))


@every_environment
def test_known_values_in_a_preview_equal_the_final_values(environment: str) -> None:
    def agrees(known: object, final: object) -> bool:
        if known is UNKNOWN:
            return True
        if isinstance(known, dict) and isinstance(final, dict):
            return known.keys() == final.keys() and all(agrees(known[key], final[key]) for key in known)
        if isinstance(known, list) and isinstance(final, list):
            return len(known) == len(final) and all(map(agrees, known, final))
        return known == final

    pairs = zip(preview(environment).resources, graph(environment).resources, strict=True)
    assert [one.urn for one, final in pairs if not agrees(one.properties, final.properties)] == []


@every_environment
def test_stateful_resources_are_protected_by_kind_of_environment(environment: str) -> None:
    wanted = protection_of(settings_of(environment).environment.kind)
    stores = [one for one in graph(environment).resources if one.type in STATEFUL_TYPES]
    assert {one.type for one in stores} == set(STATEFUL_TYPES) - {LUSTRE}
    assert {(one.protect, one.retain_on_delete) for one in stores} == {(wanted.protect, wanted.retain_on_delete)}


def test_every_child_of_a_bucket_is_protected_in_prod() -> None:
    parts = [one for one in graph("prod").resources if one.type.startswith("aws:s3/")]
    assert len(parts) == 3 * 7 + 2  # the log bucket has no access log
    assert all(one.protect and one.retain_on_delete for one in parts)


def test_stateless_resources_are_not_protected() -> None:
    protected = {one.type for one in graph("prod").resources if one.protect}
    assert (
        protected & {"aws:eks/nodeGroup:NodeGroup", "aws:ec2/launchTemplate:LaunchTemplate", "aws:iam/role:Role"}
        == set()
    )


@every_environment
def test_nodes_depend_on_routes_add_ons_and_their_role(environment: str) -> None:
    recording = graph(environment)
    needed = [
        *(one for one in recording.resources if one.type in {"aws:ec2/route:Route", "aws:ec2/natGateway:NatGateway"}),
        *(recording.find("aws:eks/addon:Addon", name) for name in ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")),
        *(one for one in recording.of_type("aws:iam/rolePolicyAttachment:RolePolicyAttachment") if "node-" in one.name),
    ]
    for group in recording.of_type("aws:eks/nodeGroup:NodeGroup"):
        missing = [one.name for one in needed if not depends_on(recording, group, one)]
        assert missing == []


def test_add_ons_with_pods_depend_on_the_system_nodes() -> None:
    recording = graph("prod")
    system = [one for one in recording.of_type("aws:eks/nodeGroup:NodeGroup") if one.name.startswith("system-")]
    assert len(system) == 3
    for name in ("coredns", "metrics-server", "aws-ebs-csi-driver", "aws-efs-csi-driver"):
        assert all(depends_on(recording, recording.find("aws:eks/addon:Addon", name), one) for one in system)


def test_the_database_does_not_depend_on_nodes() -> None:
    recording = graph("prod")
    database = recording.find("aws:rds/instance:Instance", "mlflow")
    groups = recording.of_type("aws:eks/nodeGroup:NodeGroup")
    assert not any(depends_on(recording, database, group) for group in groups)


@every_environment
def test_outputs_satisfy_the_contract(environment: str) -> None:
    outputs = read_outputs(graph(environment).outputs, file="recording")
    assert set(graph(environment).outputs) == set(StackOutputs.model_fields) - {"is_recorded", "digests"}
    assert not outputs.is_recorded
    check_outputs(outputs, load_release(), catalog=load_catalog())
    assert outputs.environment == settings_of(environment).environment.name


@every_environment
def test_no_output_is_secret(environment: str) -> None:
    assert graph(environment).secret_outputs == frozenset()


def test_a_preview_knows_every_output_that_no_resource_computes() -> None:
    outputs, known = preview("prod").outputs, graph("prod").outputs
    computed = {"cluster", "network", "registries", "storage", "roles", "teams"}
    assert {name: outputs[name] for name in outputs.keys() - computed} == {
        name: known[name] for name in known.keys() - computed
    }
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


def test_without_a_team_there_is_no_trainer() -> None:
    recording = varied({"teams": []})
    assert "trainer" not in recording.outputs["roles"]


@every_environment
def test_the_budget_counts_this_stacks_cost_only(environment: str) -> None:
    settings: StackSettings = settings_of(environment)
    assert settings.budget is not None
    (budget,) = graph(environment).of_type("aws:budgets/budget:Budget")
    stack = tags_of(graph(environment))["stack"]
    assert budget.properties["costFilters"] == [{"name": "TagKeyValue", "values": [f"user:stack${stack}"]}]
    assert float(budget.properties["limitAmount"]) == settings.budget.monthly_usd
    thresholds = [one["threshold"] for one in budget.properties["notifications"] if one["notificationType"] == "ACTUAL"]
    assert thresholds == list(settings.budget.alert_percent)
    assert {mail for one in budget.properties["notifications"] for mail in one["subscriberEmailAddresses"]} == {
        settings.budget.email
    }


def test_the_budget_is_optional() -> None:
    assert sample().of_type("aws:budgets/budget:Budget") == ()
