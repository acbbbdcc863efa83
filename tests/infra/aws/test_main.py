"""The program's entry point: configuration from Pulumi, and messages instead of tracebacks."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pulumi
import pytest
from pulumi.runtime.config import set_all_config

from infra.lifecycle.image.availability import MissingImage
from infra.lifecycle.stack.stage import AccountState
from infra.preview.recording import Recording, record, record_program
from infra.spec.manifest import Manifest
from infra.spec.release import ReleaseManifest, load_release
from infra.spec.settings.loading import PROJECT
from infra.spec.settings.platform import Mirrors
from platform_charts.charts.crds import CRD_GROUPS, PinnedCharts
from tests.engines.ports import free_port
from tests.infra.aws.graphs import graph, settings_of
from tests.platform_charts.charts.archives import write_archives

Account = Callable[[AccountState], None]

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ReleaseManifest:
    """A release whose charts, made by the test, are in the archive folder."""
    release = write_archives(load_release(), tmp_path / "charts")
    monkeypatch.setattr("platform_charts.charts.archives.ARCHIVES", tmp_path / "charts")
    monkeypatch.setattr("infra.spec.release.load_release", lambda: release)
    monkeypatch.setattr("infra.aws.program.load_release", lambda: release)
    return release


class _EmptyCluster:
    """The API server of a cluster without CRDs."""

    def read(self, manifest: Manifest) -> Manifest | None:
        """What it has of an object: nothing."""


@pytest.fixture
def applied_crds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the CRDs that the program applies to a cluster that does not exist."""
    applied: list[str] = []
    here = "platform_charts.install.platform"
    monkeypatch.setattr(f"{here}.connect_to", lambda _cluster, **_: _EmptyCluster())
    monkeypatch.setattr(f"{here}.apply_crds", lambda _, crds: applied.extend(one["metadata"]["name"] for one in crds))
    return applied


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Callable[[AccountState], None]:
    """Sets what the program finds in the account; by default every image and no cluster."""

    def put(state: AccountState) -> None:
        monkeypatch.setattr("infra.lifecycle.stack.stage.read_account", lambda *_: state)

    put(AccountState(endpoint=None, missing=()))
    return put


def run(config: dict[str, str] | None = None, *, stack: str = "dev") -> Recording:
    """Run the program as the engine does, with its configuration."""

    def program() -> None:
        set_all_config(config or {})
        runpy.run_path(str(ROOT / "infra"), run_name="__main__")

    return record_program(program, stack=stack, account="111122223333", region="us-east-1")


def message_of(config: dict[str, str] | None = None, *, stack: str = "dev") -> str:
    with pytest.raises(pulumi.RunError) as caught:
        run(config, stack=stack)
    return str(caught.value)


@pytest.mark.usefixtures("account")
def test_the_program_registers_the_recorded_graph(fetched: ReleaseManifest, applied_crds: list[str]) -> None:
    expected = {one.urn: one.properties for one in record(settings_of("dev")).resources}
    assert {one.urn: one.properties for one in run().resources} == expected
    assert {one.urn: one.properties for one in run({"pulumi:tags": "{}"}).resources} == expected
    pinned = [crd["metadata"]["name"] for group in CRD_GROUPS.values() for crd in PinnedCharts(fetched).crds(group)]
    assert applied_crds == 2 * pinned


@pytest.mark.usefixtures("account")
def test_another_hash_fails_at_once(fetched: ReleaseManifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "charts" / f"kueue-{fetched.charts['kueue'].version}.tgz").write_bytes(b"changed")
    away = settings_of("dev").model_copy(update={"mirrors": Mirrors(charts="https://127.0.0.1:9/charts")})
    monkeypatch.setattr("infra.spec.settings.load_environment", lambda _stack: away)
    message = message_of()
    assert "chart kueue" in message
    assert "mirrors.charts" in message


MISSING = (MissingImage("mlflow", "digest unresolved"),)


@pytest.mark.parametrize(("environment", "missing"), [("dev", MISSING), ("staging", ())])
def test_an_empty_account_gets_the_aws_resources_and_is_told_what_comes_next(
    environment: str, missing: tuple[MissingImage, ...], account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    """Without images or behind a private endpoint nothing can be installed on the cluster yet; it needs no chart either."""
    account(AccountState(endpoint=None, missing=missing))
    expected = {one.urn for one in graph(environment).resources if "kubernetes" not in one.urn}
    found = run(stack=environment)
    assert {one.urn for one in found.resources} == expected
    assert found.outputs == {}
    assert "this update registers the AWS resources only" in caplog.text
    assert "`make up` goes on by itself" in caplog.text
    assert f"pulumi up -s {environment}" in caplog.text


def test_a_cluster_without_images_or_an_answer_is_refused_before_resources_are_registered(account: Account) -> None:
    account(AccountState(endpoint="https://c", missing=MISSING))
    assert "rtp-dev cannot start without these images:\n  mlflow: digest unresolved" in message_of()
    account(AccountState(endpoint=f"https://127.0.0.1:{free_port()}", missing=()))
    message = message_of(stack="staging")
    assert "the API server of rtp-staging does not answer this machine" in message
    assert "make tunnel ENV=staging" in message


def test_a_setting_in_pulumis_configuration_and_a_stack_without_settings_are_rejected() -> None:
    for key in ("aws:region", f"{PROJECT}:network"):
        message = message_of({key: "us-east-1"})
        assert f"Pulumi.dev.yaml: {key}: settings are not read from Pulumi's configuration" in message
        assert "environments/dev.yaml" in message
    assert "unknown environment 'dve' (did you mean dev?)" in message_of(stack="dve")


def test_prod_rejects_an_unresolved_release_but_for_images_that_are_pushed_later(account: Account) -> None:
    account(AccountState(endpoint=None, missing=MISSING))
    message = message_of(stack="prod")
    assert "images.mlflow.digest" not in message
    assert "unresolved entries, which prod refuses" in message
    assert "make release-lock" in message


def test_the_program_imports_its_packages_from_any_working_directory(tmp_path: Path) -> None:
    """Only the folder is on sys.path; for an unknown stack the program fails with its own message."""
    ended = subprocess.run(
        [sys.executable, "-I", "-c", f"import runpy; runpy.run_path({str(ROOT / 'infra')!r}, run_name='__main__')"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pulumi.errors.RunError: unknown environment 'stack'" in ended.stderr
