"""What is written into the release manifest after a push and after a copy."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

import pytest

from infra.lifecycle.image.record import write_copy, write_push
from infra.spec.errors import SettingsError
from infra.spec.release import RELEASE_FILE, load_release
from infra.spec.release_rules import findings, read_project

TAG = f"{load_release().platform}-cuda-0123456789ab"
DIGEST = f"sha256:{'d' * 64}"
REVISION = "a" * 40
TODAY = date(2030, 1, 31)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A copy of the release manifest."""
    return Path(shutil.copy(RELEASE_FILE, tmp_path))


def push(file: Path, digest: str = DIGEST, revision: str = REVISION) -> None:
    write_push(file, "trainer", tag=TAG, digest=digest, revision=revision, today=TODAY)


def test_a_push_writes_tag_digest_and_commit_and_nothing_else(file: Path) -> None:
    before = file.read_text(encoding="utf-8").splitlines()
    push(file)
    after = file.read_text(encoding="utf-8").splitlines()
    assert [line for line in before if line not in after] == []
    assert [line.strip() for line in after if line not in before] == [
        f"tag: {TAG}",
        f"digest: {DIGEST}",
        f"as_of: {TODAY}",
        f"source: built from commit {REVISION}",
    ]
    image = load_release(file).images["trainer"]
    assert (image.tag, image.digest, image.as_of) == (TAG, DIGEST, TODAY)
    assert findings(load_release(file), project=read_project()) == ()


def test_the_same_image_at_another_commit_is_not_written_again(file: Path) -> None:
    push(file)
    before = file.read_bytes()
    push(file, revision="b" * 40)
    assert file.read_bytes() == before


def test_a_push_updates_the_contained_versions(file: Path) -> None:
    ray = load_release().stack.ray
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(f"ray: {ray}, torch", "ray: 2.59.0, torch"), encoding="utf-8")
    push(file)
    assert load_release(file).images["trainer"].contains["ray"] == ray


def test_an_invalid_digest_leaves_the_manifest_unchanged(file: Path) -> None:
    with pytest.raises(SettingsError, match="digest"):
        push(file, digest="sha256:short")
    assert file.read_bytes() == RELEASE_FILE.read_bytes()


def test_every_copy_is_added_to_the_source(file: Path) -> None:
    push(file)
    write_copy(file, "trainer", origin="dev", target="staging", today=TODAY)
    write_copy(file, "trainer", origin="staging", target="prod", today=date(2030, 2, 1))
    image = load_release(file).images["trainer"]
    assert (image.digest, image.as_of) == (DIGEST, date(2030, 2, 1))
    assert image.source == (
        f"built from commit {REVISION}; copied from dev to staging on 2030-01-31; copied from staging to prod on 2030-02-01"
    )
