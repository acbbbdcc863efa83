"""Every rule over the recorded graph of every environment, with known values and as a preview."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.aws import program
from infra.policy import RULES, evaluate
from infra.policy.documents import IDENTITY_DOCUMENT_TYPES, identity_statements
from infra.policy.graph import graph_from_recording
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
    release = resolved(load_release())
    monkeypatch.setattr(program, "load_release", lambda: release)


def findings(recording: Recording) -> list[str]:
    return [str(one) for one in evaluate(graph_from_recording(recording))]


def test_every_environment_complies_with_every_rule_also_in_a_preview() -> None:
    for environment in ENVIRONMENTS:
        is_prod = settings_of(environment).environment.kind is EnvironmentKind.PROD
        allowed = PINNED_BY_LOCK if is_prod and load_release().unresolved() else set()
        for recording in (graph(environment), preview(environment)):
            violated = evaluate(graph_from_recording(recording))
            assert {one.rule.name for one in violated} == allowed, f"{environment}: {violated}"


@pytest.mark.extended
def test_every_kind_of_capacity_lustre_and_a_public_endpoint_comply_with_every_rule() -> None:
    for recording in (with_lustre("dev"), with_lustre("staging"), preview("lustre"), unusual()):
        assert findings(recording) == []
    assert findings(varied({"cluster.public_cidrs": ["198.51.100.0/24"]})) == []


@pytest.mark.usefixtures("locked_release")
def test_prod_complies_with_every_rule_once_the_release_is_locked() -> None:
    assert findings(record(settings_of("prod"))) == []


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
