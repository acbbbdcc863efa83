"""The recorded graph against the real AWS provider: it knows everything, plans everything, and makes what moto holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from infra.preview.recording import Recording
from tests.engines.terraform import Workspace, find_tools, moto_server
from tests.infra.aws.graphs import ENVIRONMENTS, graph, settings_of, tags_of, unusual
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
def folders(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Workspace]:
    """Makes folders in which Terraform has found its provider."""
    tools = find_tools()
    return lambda: Workspace(tools, tmp_path_factory.mktemp("terraform"), endpoint=endpoint, region=REGION)


@pytest.fixture(scope="module")
def workspace(folders: Callable[[], Workspace]) -> Workspace:
    """The folder that everything is planned in."""
    return folders()


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    """Every environment, and one in which nothing has its default."""
    return {**{name: graph(name) for name in ENVIRONMENTS}, "unusual": unusual()}


@pytest.fixture(scope="module")
def translations(workspace: Workspace, recordings: dict[str, Recording]) -> dict[str, Translation]:
    """The environments in Terraform's words."""
    accounts = {name: settings_of(name).aws.allowed_accounts[0] for name in ENVIRONMENTS}
    return {
        name: translate(recording, workspace.schemas, prefix=name, account=accounts.get(name, ACCOUNT), region=REGION)
        for name, recording in recordings.items()
    }


def merged(parts: Iterable[Configuration]) -> Configuration:
    """Several configurations in one; their names differ by their beginning."""
    whole: Configuration = {}
    for part in parts:
        for type_, members in part.items():
            whole.setdefault(type_, {}).update(members)
    return whole


@dataclass(frozen=True)
class Life:
    """What became of the test environment.

    Attributes:
        intended: addresses that moto can hold.
        made: addresses after the first apply.
        differing: Terraform types that a plan would change then.
        changes: actions by address, of a plan that leaves alone what moto does not show.
        left: addresses after everything was destroyed.
    """

    intended: set[str]
    made: set[str]
    differing: set[str]
    changes: dict[str, str]
    left: set[str]


def live(workspace: Workspace, recording: Recording, translation: Translation) -> Life:
    """Make the environment, plan it again, and destroy it."""
    without_double = {
        one.urn for one in recording.resources if {(one.type, "*"), (one.type, one.name)} & set(NOT_ON_MOTO)
    }
    configuration, tags = translation.without(without_double), tags_of(recording)
    workspace.write(configuration, tags=tags)
    workspace.apply()
    made = workspace.state()
    differing = {address.partition(".")[0] for address in workspace.plan()}
    workspace.write(ignoring(configuration, set(NOT_SHOWN_BY_MOTO)), tags=tags)
    changes = workspace.plan()
    workspace.destroy()
    intended = {address for address, urn in translation.urns.items() if urn not in without_double}
    return Life(intended, made, differing, changes, workspace.state())


@pytest.fixture(scope="module", autouse=True)
def life(
    folders: Callable[[], Workspace], recordings: dict[str, Recording], translations: dict[str, Translation]
) -> Iterator[Future[Life]]:
    """The test environment's life; it mostly waits, so everything is planned meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(live, folders(), recordings["test"], translations["test"])


def test_the_provider_knows_every_type_and_property(translations: dict[str, Translation]) -> None:
    assert {one for part in translations.values() for one in part.unknown} == set(NEWER_THAN_THE_PROVIDER)


def test_the_provider_plans_every_resource_of_every_environment(
    workspace: Workspace, recordings: dict[str, Recording], translations: dict[str, Translation]
) -> None:
    resources = merged(part.resources for part in translations.values())
    workspace.write(resources, tags=tags_of(recordings["prod"]))
    expected = {address for part in translations.values() for address in part.urns}
    assert workspace.plan() == dict.fromkeys(expected, "create")


def test_everything_that_moto_holds_is_made(life: Future[Life]) -> None:
    assert life.result().made == life.result().intended
    assert len(life.result().made) > 100


def test_a_second_plan_changes_nothing(life: Future[Life]) -> None:
    assert life.result().changes == {}


def test_every_attribute_left_alone_is_of_a_type_that_moto_does_not_show_whole(life: Future[Life]) -> None:
    assert life.result().differing == {type_ for type_, _ in NOT_SHOWN_BY_MOTO}


def test_destroying_leaves_nothing(life: Future[Life]) -> None:
    assert life.result().left == set()


def test_every_exception_is_needed(recordings: dict[str, Recording]) -> None:
    resources = [one for recording in recordings.values() for one in recording.resources]
    types, names = {one.type for one in resources}, {(one.type, one.name) for one in resources}
    assert all((type_ in types) if name == "*" else (type_, name) in names for type_, name in NOT_ON_MOTO)
    assert all(type_ in types for type_, _ in NEWER_THAN_THE_PROVIDER)
    assert len(NOT_ON_MOTO) + len(NOT_SHOWN_BY_MOTO) + len(NEWER_THAN_THE_PROVIDER) == COUNT
