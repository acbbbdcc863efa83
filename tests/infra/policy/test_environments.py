"""Every rule over the recorded graph of every shipped environment, with known values and as a preview."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.aws import program
from infra.policy import RULES, Finding, evaluate
from infra.policy.documents import IDENTITY_DOCUMENT_TYPES, identity_statements
from infra.policy.graph import Graph, graph_of
from infra.policy.rule import ResourceRule
from infra.policy.rules.iam import WITHOUT_RESOURCE
from infra.preview.recording import Recording, record
from infra.spec.protection import EnvironmentKind
from infra.spec.release import ReleaseManifest, load_release
from tests.infra.aws.graphs import ENVIRONMENTS, graph, preview, settings_of, unusual, varied

PINNED_BY_LOCK = {"node-images-are-pinned", "addons-are-pinned", "images-are-named-by-digest"}
"""Rules that prod breaks for as long as the release has unresolved entries, with which prod is refused anyway."""


def resolved(release: ReleaseManifest) -> ReleaseManifest:
    """The release as it is when AMI releases, add-on versions and digests have been looked up."""
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
    """Programs run with the resolved release."""
    release = resolved(load_release())
    monkeypatch.setattr(program, "load_release", lambda: release)


def findings(recording: Recording) -> list[str]:
    """Findings as people read them."""
    return [str(one) for one in evaluate(graph_of(recording))]


@pytest.mark.parametrize("is_preview", [False, True], ids=["known", "preview"])
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_rule_is_content_with_the_environment(environment: str, is_preview: bool) -> None:  # noqa: FBT001
    is_open = settings_of(environment).environment.kind is EnvironmentKind.PROD and bool(load_release().unresolved())
    broken = evaluate(graph_of(preview(environment) if is_preview else graph(environment)))
    assert {one.rule.name for one in broken} == (PINNED_BY_LOCK if is_open else set())


@pytest.mark.usefixtures("locked_release")
def test_every_rule_is_content_with_prod_once_the_release_is_locked() -> None:
    assert findings(record(settings_of("prod"))) == []


def test_every_rule_is_content_with_every_way_to_get_machines() -> None:
    assert findings(unusual()) == []


def test_every_rule_is_content_with_a_public_endpoint_for_offices_in_dev() -> None:
    assert findings(varied({"cluster.public_cidrs": ["198.51.100.0/24"]})) == []


def test_every_type_that_a_rule_is_about_is_in_prod() -> None:
    types = {one.type for one in graph("prod").resources}
    about = {type_ for rule in RULES if isinstance(rule, ResourceRule) for type_ in rule.types}
    absent = {type_ for type_ in about if type_ not in types}
    assert absent == {
        "aws:iam/accessKey:AccessKey",  # refused wherever it is
        "aws:iam/policy:Policy",
        "aws:iam/user:User",
        "aws:ecr/repositoryPolicy:RepositoryPolicy",
    }


def test_a_preview_shows_the_rules_the_same_references() -> None:
    def references(recording: Recording) -> Iterator[tuple[str, str, frozenset[str]]]:
        for subject in graph_of(recording).subjects:
            yield from ((subject.urn, prop, urns) for prop, urns in subject.references.items() if urns)

    assert set(references(preview("prod"))) == set(references(graph("prod")))


def test_every_action_that_may_stand_beside_a_star_is_needed_by_some_role() -> None:
    roles = [one for one in graph_of(graph("prod")).subjects if one.type in IDENTITY_DOCUMENT_TYPES]
    allowed = [one for role in roles for one in identity_statements(role) if one.allows and "*" in one.resources]
    assert {action for one in allowed if not one.condition for action in one.actions} == WITHOUT_RESOURCE


def without(recording: Recording, type_: str) -> Graph:
    """The graph without the resources of a type."""
    return Graph(subject for subject in graph_of(recording).subjects if subject.type != type_)


@pytest.mark.parametrize(
    ("type_", "rule"),
    [
        ("aws:s3/bucketPolicy:BucketPolicy", "buckets-refuse-plain-http"),
        ("aws:s3/bucketVersioning:BucketVersioning", "buckets-are-versioned"),
        ("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", "buckets-block-public-access"),
        ("aws:efs/fileSystemPolicy:FileSystemPolicy", "file-systems-refuse-plain-mounts"),
        ("aws:efs/backupPolicy:BackupPolicy", "file-systems-are-backed-up"),
        ("aws:rds/parameterGroup:ParameterGroup", "databases-refuse-plain-connections"),
        ("aws:ec2/flowLog:FlowLog", "networks-keep-flow-logs"),
        ("aws:autoscaling/tag:Tag", "groups-at-zero-tell-the-autoscaler-what-they-hold"),
        ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "efa-reaches-its-peers"),
        ("aws:cloudwatch/logGroup:LogGroup", "the-log-group-of-the-cluster-is-ours"),
        ("aws:budgets/budget:Budget", "spending-is-watched"),
        ("aws:ec2/natGateway:NatGateway", "prod-survives-the-loss-of-a-zone"),
    ],
)
def test_a_resource_forgotten_in_prod_is_found(type_: str, rule: str) -> None:
    found: tuple[Finding, ...] = evaluate(without(graph("prod"), type_))
    assert rule in {one.rule.name for one in found}
