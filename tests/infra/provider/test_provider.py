"""The recorded graph against the real AWS provider: it knows everything, plans everything, and makes what moto holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from infra.recording import Recording
from tests.engines.terraform import Workspace, find_tools, moto_server
from tests.infra.components.graphs import ENVIRONMENTS, graph, settings_of, tags_of, unusual
from tests.infra.provider.exceptions import COUNT, NEWER_THAN_THE_PROVIDER, NOT_ON_MOTO, NOT_SHOWN_BY_MOTO
from tests.infra.provider.translate import Configuration, Translation, ignoring, translate

REGION = "us-east-1"
ACCOUNT = "111122223333"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """AWS, as moto plays it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
        with moto_server() as url:
            yield url


@pytest.fixture(scope="module")
def workspace(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A folder in which Terraform has found its provider."""
    return Workspace(find_tools(), tmp_path_factory.mktemp("terraform"), endpoint=endpoint, region=REGION)


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    """Every environment, and one in which nothing has its default."""
    return {**{name: graph(name) for name in ENVIRONMENTS}, "unusual": unusual()}


@pytest.fixture(scope="module")
def translations(workspace: Workspace, recordings: dict[str, Recording]) -> dict[str, Translation]:
    """The environments in Terraform's words."""
    accounts = {name: settings_of(name).aws.allowed_accounts[0] for name in ENVIRONMENTS}
    return {
        name: translate(recording, workspace.schemas, alias=name, account=accounts.get(name, ACCOUNT), region=REGION)
        for name, recording in recordings.items()
    }


def merged(parts: Iterable[Configuration]) -> Configuration:
    """Several configurations in one; their names differ by their beginning."""
    whole: Configuration = {}
    for part in parts:
        for type_, members in part.items():
            whole.setdefault(type_, {}).update(members)
    return whole


def is_left_out(recording: Recording, urn: str) -> bool:
    """Whether moto cannot hold the resource."""
    (one,) = [resource for resource in recording.resources if resource.urn == urn]
    return (one.type, "*") in NOT_ON_MOTO or (one.type, one.name) in NOT_ON_MOTO


def test_the_provider_knows_every_type_and_property(translations: dict[str, Translation]) -> None:
    assert {one for part in translations.values() for one in part.unknown} == set(NEWER_THAN_THE_PROVIDER)


def test_the_provider_plans_every_resource_of_every_environment(
    workspace: Workspace, recordings: dict[str, Recording], translations: dict[str, Translation]
) -> None:
    resources = merged(part.resources for part in translations.values())
    workspace.write(resources, tags={name: tags_of(recording) for name, recording in recordings.items()})
    expected = {address for part in translations.values() for address in part.urns}
    assert workspace.plan() == dict.fromkeys(expected, "create")


def test_what_moto_holds_is_made_stays_as_it_is_and_goes_without_a_trace(
    workspace: Workspace, recordings: dict[str, Recording], translations: dict[str, Translation]
) -> None:
    recording, translation = recordings["test"], translations["test"]
    left_out = {urn for urn in translation.urns.values() if is_left_out(recording, urn)}
    tags, configuration = {"test": tags_of(recording)}, translation.without(left_out)
    workspace.write(configuration, tags=tags)
    workspace.apply()
    assert workspace.state() == {address for address, urn in translation.urns.items() if urn not in left_out}
    differing = {address.partition(".")[0] for address in workspace.plan()}
    assert differing == {type_ for type_, _ in NOT_SHOWN_BY_MOTO}
    workspace.write(ignoring(configuration, set(NOT_SHOWN_BY_MOTO)), tags=tags)
    assert workspace.plan() == {}
    workspace.destroy()
    assert workspace.state() == set()


def test_every_exception_is_needed(recordings: dict[str, Recording]) -> None:
    resources = [one for recording in recordings.values() for one in recording.resources]
    types, names = {one.type for one in resources}, {(one.type, one.name) for one in resources}
    assert all((type_ in types) if name == "*" else (type_, name) in names for type_, name in NOT_ON_MOTO)
    assert all(type_ in types for type_, _ in NEWER_THAN_THE_PROVIDER)
    assert len(NOT_ON_MOTO) + len(NOT_SHOWN_BY_MOTO) + len(NEWER_THAN_THE_PROVIDER) == COUNT
