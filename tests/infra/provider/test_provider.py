"""The recorded graph, planned and applied by the real AWS provider against moto."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from infra.preview.recording import Recording
from tests.engines.terraform import Workspace, find_tools, moto_server
from tests.infra.aws.graphs import ENVIRONMENTS, EXISTING, graph, settings_of, tags_of, unusual
from tests.infra.provider.exceptions import COUNT, NOT_IN_PROVIDER, NOT_ON_MOTO, NOT_RETURNED_BY_MOTO
from tests.infra.provider.translate import Configuration, Translation, ignoring, translate

REGION = "us-east-1"
ACCOUNT = "111122223333"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """URL of moto, which mocks AWS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
        with moto_server() as url:
            yield url


@pytest.fixture(scope="module")
def folders(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Workspace]:
    """A factory of Terraform working directories with the provider installed."""
    tools = find_tools()
    return lambda: Workspace(tools, tmp_path_factory.mktemp("terraform"), endpoint=endpoint, region=REGION)


@pytest.fixture(scope="module")
def workspace(folders: Callable[[], Workspace]) -> Workspace:
    """The working directory of the plans."""
    return folders()


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    """Every environment, one without default values, and those in an existing VPC and on an existing cluster."""
    return {**{name: graph(name) for name in (*ENVIRONMENTS, *EXISTING)}, "unusual": unusual()}


@pytest.fixture(scope="module")
def translations(workspace: Workspace, recordings: dict[str, Recording]) -> dict[str, Translation]:
    """The environments as Terraform configurations."""
    accounts = {name: settings_of(name).aws.allowed_accounts[0] for name in (*ENVIRONMENTS, *EXISTING)}
    return {
        name: translate(recording, workspace.schemas, prefix=name, account=accounts.get(name, ACCOUNT), region=REGION)
        for name, recording in recordings.items()
    }


def merged(parts: Iterable[Configuration]) -> Configuration:
    """Several configurations in one; their names have different prefixes."""
    whole: Configuration = {}
    for part in parts:
        for type_, members in part.items():
            whole.setdefault(type_, {}).update(members)
    return whole


@dataclass(frozen=True)
class Lifecycle:
    """Results of apply, plan and destroy.

    Attributes:
        expected: addresses that moto supports.
        applied: addresses after apply.
        differing: Terraform types that a second plan would change.
        changes: actions by address, of a plan that ignores what moto does not return.
        left: addresses after destroy.
    """

    expected: set[str]
    applied: set[str]
    differing: set[str]
    changes: dict[str, str]
    left: set[str]


def apply_plan_destroy(workspace: Workspace, recording: Recording, translation: Translation) -> Lifecycle:
    """Apply the environment, plan it again, and destroy it."""
    exempt = {one.urn for one in recording.resources if {(one.type, "*"), (one.type, one.name)} & set(NOT_ON_MOTO)}
    unsupported = translation.with_users(exempt)
    configuration, tags = translation.without(unsupported), tags_of(recording)
    workspace.write(configuration, tags=tags)
    workspace.apply()
    applied = workspace.state()
    differing = {address.partition(".")[0] for address in workspace.plan()}
    workspace.write(ignoring(configuration, set(NOT_RETURNED_BY_MOTO)), tags=tags)
    changes = workspace.plan()
    workspace.destroy()
    expected = {address for address, urn in translation.urns.items() if urn not in unsupported}
    return Lifecycle(expected, applied, differing, changes, workspace.state())


@pytest.fixture(scope="module", autouse=True)
def lifecycle(
    request: pytest.FixtureRequest,
    folders: Callable[[], Workspace],
    recordings: dict[str, Recording],
    translations: dict[str, Translation],
) -> Iterator[Future[Lifecycle] | None]:
    """The test environment's lifecycle, in a thread that runs while the other tests plan; None if no long test runs."""
    chosen = (one for one in request.session.items if one.path == request.path)
    if not any(one.get_closest_marker("long") for one in chosen):
        yield None
        return
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(apply_plan_destroy, folders(), recordings["test"], translations["test"])


def test_the_provider_has_every_type_and_property(translations: dict[str, Translation]) -> None:
    assert {one for part in translations.values() for one in part.unknown} == set(NOT_IN_PROVIDER)


def test_the_provider_plans_every_resource_of_every_environment(
    workspace: Workspace, recordings: dict[str, Recording], translations: dict[str, Translation]
) -> None:
    resources = merged(part.resources for part in translations.values())
    workspace.write(resources, tags=tags_of(recordings["prod"]))
    expected = {address for part in translations.values() for address in part.urns}
    assert workspace.plan() == dict.fromkeys(expected, "create")


@pytest.mark.long
def test_every_resource_that_moto_supports_is_created(lifecycle: Future[Lifecycle]) -> None:
    assert lifecycle.result().applied == lifecycle.result().expected
    assert len(lifecycle.result().applied) > 100


@pytest.mark.long
def test_a_second_plan_changes_nothing(lifecycle: Future[Lifecycle]) -> None:
    assert lifecycle.result().changes == {}


@pytest.mark.long
def test_only_ignored_attributes_differ_after_apply(lifecycle: Future[Lifecycle]) -> None:
    assert lifecycle.result().differing == {type_ for type_, _ in NOT_RETURNED_BY_MOTO}


@pytest.mark.long
def test_destroying_leaves_nothing(lifecycle: Future[Lifecycle]) -> None:
    assert lifecycle.result().left == set()


def test_every_exception_is_needed(recordings: dict[str, Recording]) -> None:
    resources = [one for recording in recordings.values() for one in recording.resources]
    types, names = {one.type for one in resources}, {(one.type, one.name) for one in resources}
    assert all((type_ in types) if name == "*" else (type_, name) in names for type_, name in NOT_ON_MOTO)
    assert all(type_ in types for type_, _ in NOT_IN_PROVIDER)
    assert len(NOT_ON_MOTO) + len(NOT_RETURNED_BY_MOTO) + len(NOT_IN_PROVIDER) == COUNT
