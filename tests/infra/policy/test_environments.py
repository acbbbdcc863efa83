"""Every rule over the recorded graph of every environment, with known values and as a preview."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.aws import program
from infra.policy import RULES, Finding, evaluate
from infra.policy.documents import IDENTITY_DOCUMENT_TYPES, identity_statements
from infra.policy.graph import Graph, graph_from_recording
from infra.policy.rule import ResourceRule
from infra.policy.rules.iam import ACTIONS_WITHOUT_RESOURCE_TYPE
from infra.preview.recording import Recording, record
from infra.spec.protection import EnvironmentKind
from infra.spec.release import ReleaseManifest, load_release
from tests.infra.aws.graphs import ENVIRONMENTS, graph, preview, settings_of, unusual, varied, with_lustre

PINNED_BY_LOCK = {"node-images-are-pinned", "addons-are-pinned", "images-are-pinned-by-digest"}
"""Rules that prod violates while the release has unresolved entries, which prod rejects anyway."""


def resolved(release: ReleaseManifest) -> ReleaseManifest:
    """The release with resolved AMI releases, add-on versions and digests."""
    amis = dict.fromkeys(release.node_image.releases, f"{release.kubernetes.version}.2-20300101")
    addons = {
        name: addon if addon.version else addon.model_copy(update={"version": "v1.0.0-eksbuild.1"})
        for name, addon in release.addons.items()
    }
    image = release.node_image.model_copy(update={"releases": amis})
    digest = "sha256:" + "0" * 64
    images = {name: one.model_copy(update={"digest": digest}) for name, one in release.images.items()}
    return release.model_copy(update={"node_image": image, "addons": addons, "images": images})


@pytest.fixture
def locked_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run programs with the resolved release."""
    release = resolved(load_release())
    monkeypatch.setattr(program, "load_release", lambda: release)


def findings(recording: Recording) -> list[str]:
    """Findings as text."""
    return [str(one) for one in evaluate(graph_from_recording(recording))]


@pytest.mark.parametrize("is_preview", [False, True], ids=["known", "preview"])
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_environment_complies_with_every_rule(environment: str, is_preview: bool) -> None:  # noqa: FBT001
    is_open = settings_of(environment).environment.kind is EnvironmentKind.PROD and bool(load_release().unresolved())
    violated = evaluate(graph_from_recording(preview(environment) if is_preview else graph(environment)))
    assert {one.rule.name for one in violated} == (PINNED_BY_LOCK if is_open else set())


@pytest.mark.parametrize("kind", ["dev", "staging"])
def test_an_environment_with_lustre_complies_with_every_rule(kind: str) -> None:
    assert findings(with_lustre(kind)) == []


def test_a_preview_with_lustre_complies_with_every_rule() -> None:
    assert findings(preview("lustre")) == []


@pytest.mark.usefixtures("locked_release")
def test_prod_complies_with_every_rule_once_the_release_is_locked() -> None:
    assert findings(record(settings_of("prod"))) == []


def test_every_capacity_type_complies_with_every_rule() -> None:
    assert findings(unusual()) == []


def test_dev_may_have_a_public_endpoint_for_named_ranges() -> None:
    assert findings(varied({"cluster.public_cidrs": ["198.51.100.0/24"]})) == []


def test_prod_has_every_type_that_a_rule_checks() -> None:
    types = {one.type for one in graph("prod").resources}
    about = {type_ for rule in RULES if isinstance(rule, ResourceRule) for type_ in rule.types}
    absent = {type_ for type_ in about if type_ not in types}
    assert absent == {
        "aws:iam/accessKey:AccessKey",  # violates a rule wherever it occurs
        "aws:iam/policy:Policy",
        "aws:iam/user:User",
        "aws:ecr/repositoryPolicy:RepositoryPolicy",
        "aws:fsx/lustreFileSystem:LustreFileSystem",  # only where storage.lustre is set
    }


def test_a_preview_has_the_same_references_as_an_update() -> None:
    def references(recording: Recording) -> Iterator[tuple[str, str, frozenset[str]]]:
        for resource in graph_from_recording(recording).resources:
            yield from ((resource.urn, prop, urns) for prop, urns in resource.references.items() if urns)

    assert set(references(preview("prod"))) == set(references(graph("prod")))


def test_a_role_needs_every_action_that_is_allowed_with_a_wildcard_resource() -> None:
    roles = [one for one in graph_from_recording(graph("prod")).resources if one.type in IDENTITY_DOCUMENT_TYPES]
    allowed = [one for role in roles for one in identity_statements(role) if one.allows and "*" in one.resources]
    assert {action for one in allowed if not one.condition for action in one.actions} == ACTIONS_WITHOUT_RESOURCE_TYPE


def without(recording: Recording, type_: str) -> Graph:
    """The graph without the resources of a type."""
    return Graph(resource for resource in graph_from_recording(recording).resources if resource.type != type_)


@pytest.mark.parametrize(
    ("type_", "rule"),
    [
        ("aws:s3/bucketPolicy:BucketPolicy", "buckets-require-tls"),
        ("aws:s3/bucketVersioning:BucketVersioning", "buckets-are-versioned"),
        ("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", "buckets-block-public-access"),
        ("aws:efs/fileSystemPolicy:FileSystemPolicy", "file-systems-require-tls"),
        ("aws:efs/backupPolicy:BackupPolicy", "file-systems-are-backed-up"),
        ("aws:rds/parameterGroup:ParameterGroup", "databases-require-tls"),
        ("aws:ec2/flowLog:FlowLog", "vpcs-have-flow-logs"),
        ("aws:autoscaling/tag:Tag", "empty-node-groups-have-autoscaler-tags"),
        ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "efa-nodes-reach-each-other"),
        ("aws:cloudwatch/logGroup:LogGroup", "control-plane-log-group-is-managed"),
        ("aws:budgets/budget:Budget", "budgets-are-set"),
        ("aws:ec2/natGateway:NatGateway", "prod-survives-a-zone-failure"),
    ],
)
def test_a_missing_resource_in_prod_is_a_violation(type_: str, rule: str) -> None:
    found: tuple[Finding, ...] = evaluate(without(graph("prod"), type_))
    assert rule in {one.rule.name for one in found}
