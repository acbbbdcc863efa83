"""`promote`, and what it and a push write into the release manifest: AWS is moto's, the two registries are real."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from infra.lifecycle.commands import promote as command
from infra.lifecycle.image.ecr import EnvironmentRegistry
from infra.lifecycle.image.record import write_copy, write_push
from infra.lifecycle.options import PromoteOptions
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.release import RELEASE_FILE, Image, load_release
from infra.spec.release_rules import findings, read_project
from tests.engines.oci_registry import RunningRegistry, push_image, registry
from tests.infra.lifecycle.image.accounts import Account, allow_moto

TAG = f"{load_release().platform}-0123456789ab"
DIGEST = f"sha256:{'d' * 64}"
REVISION = "a" * 40
TODAY = date(2030, 1, 31)


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Account]]:
    with allow_moto(monkeypatch):
        found = {name: Account(name) for name in ("staging", "prod")}
        for account in found.values():
            account.create("trainer", "mlflow")
        yield found


@pytest.fixture
def registries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, RunningRegistry]]:
    with registry(tmp_path / "staging") as staging, registry(tmp_path / "prod") as prod:
        found = {"staging": staging, "prod": prod}

        def remote(self: EnvironmentRegistry, image: Image) -> Any:  # noqa: ANN401 - as the method it replaces
            return found[self.environment].repository(self.registry.name(image))

        monkeypatch.setattr(EnvironmentRegistry, "remote", remote)
        yield found


@pytest.fixture
def release_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the release manifest, used by the command."""
    file = Path(shutil.copy(RELEASE_FILE, tmp_path))
    monkeypatch.setattr(command, "RELEASE_FILE", file)
    return file


def run(**options: Any) -> int:  # noqa: ANN401
    return command.promote(PromoteOptions(**{"image": "mlflow", "from_": "staging", "to": "prod", **options}))


def test_prod_gets_the_digest_of_staging_and_the_release_records_it(
    accounts: dict[str, Account],
    registries: dict[str, RunningRegistry],
    release_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pushed = push_image(registries["staging"].repository("rtp-staging/mlflow"), TAG, [b"packages", b"code"])
    write_push(release_file, "mlflow", tag=TAG, digest=pushed.digest, revision=REVISION, today=command.today())
    assert run() == 0
    assert registries["prod"].repository("rtp-prod/mlflow").manifest(TAG) == pushed
    image = load_release(release_file).images["mlflow"]
    assert (image.tag, image.digest) == (TAG, pushed.digest)
    assert image.source == f"built from commit {REVISION}; copied from staging to prod on {command.today()}"
    recorded = release_file.read_bytes()
    assert "mlflow: 3 blobs, " in capsys.readouterr().out
    assert run() == 0
    assert "mlflow: already promoted, 0 bytes copied" in capsys.readouterr().out
    assert release_file.read_bytes() == recorded


def test_what_cannot_be_promoted_is_refused_at_once(accounts: dict[str, Account], release_file: Path) -> None:
    said = r"unresolved in release\.yaml, .*: images\.trainer\.digest, images\.session\.digest, images\.mlflow\.digest"
    with pytest.raises(RefusedError, match=said):
        run(image=None)
    write_push(release_file, "mlflow", tag=TAG, digest=DIGEST, revision=REVISION, today=TODAY)
    with pytest.raises(RefusedError, match="staging and staging have the same repositories"):
        run(to="staging")
    accounts["prod"].ecr.delete_repository(repositoryName="rtp-prod/mlflow")
    with pytest.raises(RefusedError, match=r"no repository rtp-prod/mlflow\n  remedy: create it: make up ENV=prod"):
        run()


@pytest.mark.usefixtures("accounts")
def test_each_side_has_its_profile(release_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_push(release_file, "mlflow", tag=TAG, digest=DIGEST, revision=REVISION, today=TODAY)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    (tmp_path / "config").write_text("[profile one]\naws_access_key_id = a\naws_secret_access_key = b\n")
    with pytest.raises(RefusedError, match=r"staging: The config profile \(two\)"):
        run(from_profile="two", to_profile="one")
    with pytest.raises(RefusedError, match=r"prod: The config profile \(two\)"):
        run(from_profile="one", to_profile="two")


TRAINER_TAG = f"{load_release().platform}-cuda-0123456789ab"


def push(release_file: Path, digest: str = DIGEST, revision: str = REVISION) -> None:
    write_push(release_file, "trainer", tag=TRAINER_TAG, digest=digest, revision=revision, today=TODAY)


def test_a_push_writes_tag_digest_and_commit_and_nothing_else(release_file: Path) -> None:
    before = release_file.read_text(encoding="utf-8").splitlines()
    push(release_file)
    after = release_file.read_text(encoding="utf-8").splitlines()
    assert [line for line in before if line not in after] == []
    written = {"tag": TRAINER_TAG, "digest": DIGEST, "as_of": TODAY, "source": f"built from commit {REVISION}"}
    assert [line.strip() for line in after if line not in before] == [f"{key}: {one}" for key, one in written.items()]
    image = load_release(release_file).images["trainer"]
    assert (image.tag, image.digest, image.as_of) == (TRAINER_TAG, DIGEST, TODAY)
    assert findings(load_release(release_file), project=read_project()) == ()


def test_the_same_image_is_not_written_again_and_every_copy_is_added_to_the_source(release_file: Path) -> None:
    push(release_file)
    before = release_file.read_bytes()
    push(release_file, revision="b" * 40)
    assert release_file.read_bytes() == before
    push(release_file)
    write_copy(release_file, "trainer", origin="dev", target="staging", today=TODAY)
    write_copy(release_file, "trainer", origin="staging", target="prod", today=date(2030, 2, 1))
    image = load_release(release_file).images["trainer"]
    assert (image.digest, image.as_of) == (DIGEST, date(2030, 2, 1))
    copies = "; copied from dev to staging on 2030-01-31; copied from staging to prod on 2030-02-01"
    assert image.source == f"built from commit {REVISION}{copies}"


def test_an_invalid_digest_leaves_the_manifest_unchanged(release_file: Path) -> None:
    with pytest.raises(SettingsError, match="digest"):
        push(release_file, digest="sha256:short")
    assert release_file.read_bytes() == RELEASE_FILE.read_bytes()


def test_a_push_updates_the_contained_versions(release_file: Path) -> None:
    ray = load_release().stack.ray
    text = release_file.read_text(encoding="utf-8")
    release_file.write_text(text.replace(f"ray: {ray}, torch", "ray: 2.59.0, torch"), encoding="utf-8")
    push(release_file)
    assert load_release(release_file).images["trainer"].contains["ray"] == ray
