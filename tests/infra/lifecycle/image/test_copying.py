"""Copies between two real registries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.lifecycle.image.copying import Copied, copy_image
from infra.lifecycle.image.distribution import Manifest, RemoteRepository
from infra.lifecycle.image.layers import layer_table, read_layers
from infra.spec.errors import PlatformError, RefusedError
from tests.engines.cutting_proxy import cutting_proxy
from tests.engines.oci_registry import RunningRegistry, push_image, push_index, registry

TAG = "0.1.0-cuda-0123456789ab"
LARGE = os.urandom(3_000_000)
"""A layer of several chunks."""


@pytest.fixture
def staging(tmp_path: Path) -> Iterator[RunningRegistry]:
    """The registry with the image."""
    with registry(tmp_path / "staging") as found:
        yield found


@pytest.fixture
def prod(tmp_path: Path) -> Iterator[RunningRegistry]:
    """The registry that gets it."""
    with registry(tmp_path / "prod") as found:
        yield found


def target_of(prod: RunningRegistry, *, port: int | None = None) -> RemoteRepository:
    """The repository that gets the image."""
    return prod.repository("rtp-prod/trainer", port=port)


def copy(staging: RunningRegistry, target: RemoteRepository, image: Manifest) -> tuple[Copied | None, list[str]]:
    """Copy an image; gives also the lines of progress."""
    lines: list[str] = []
    return copy_image(staging.repository(), target, digest=image.digest, tag=TAG, say=lines.append), lines


def test_the_target_has_the_same_digest_and_bytes(staging: RunningRegistry, prod: RunningRegistry) -> None:
    image = push_image(staging.repository(), TAG, [LARGE, b"code"])
    copied, lines = copy(staging, target_of(prod), image)
    written = target_of(prod).manifest(TAG)
    assert written == image
    assert copied == Copied(3, sum(blob.size for blob in image.blobs))
    for blob in image.blobs:
        assert prod.blob(blob.digest).read_bytes() == staging.blob(blob.digest).read_bytes()
    assert [line.split(",")[0] for line in lines] == [f"blob {number} of 3" for number in (1, 2, 3)]


def test_an_index_is_copied_with_every_platform(staging: RunningRegistry, prod: RunningRegistry) -> None:
    source = staging.repository()
    platforms = [push_image(source, name, [b"base", name.encode()], architecture=name) for name in ("amd64", "arm64")]
    index = push_index(source, "both", platforms)
    copied, _ = copy(staging, target_of(prod), index)
    assert target_of(prod).manifest(TAG) == index
    assert [target_of(prod).manifest(one.digest) for one in platforms] == platforms
    assert copied is not None
    assert copied.blobs == 5, "the platforms share a layer, which is copied once"


def test_a_second_copy_sends_nothing(staging: RunningRegistry, prod: RunningRegistry) -> None:
    image = push_image(staging.repository(), TAG, [b"code"])
    copy(staging, target_of(prod), image)
    assert copy(staging, target_of(prod), image) == (None, [])


def test_only_layers_that_the_target_lacks_are_sent(staging: RunningRegistry, prod: RunningRegistry) -> None:
    push_image(target_of(prod), "older", [LARGE, b"older code"])
    image = push_image(staging.repository(), TAG, [LARGE, b"newer code"])
    copied, lines = copy(staging, target_of(prod), image)
    assert copied is not None
    assert copied.size < 1000
    there = [line for line in lines if line.endswith("already there")]
    assert there == [f"blob 2 of 3, {image.layers[0].digest[:19]}, 3.0 MB: already there"]


@pytest.mark.parametrize("layer", [0, 1])
def test_a_corrupt_layer_is_refused_and_the_target_stays_unchanged(
    staging: RunningRegistry, prod: RunningRegistry, layer: int
) -> None:
    image = push_image(staging.repository(), TAG, [LARGE, b"code"])
    stored = staging.blob(image.layers[layer].digest)
    content = bytearray(stored.read_bytes())
    content[len(content) // 2] ^= 1
    stored.write_bytes(content)
    with pytest.raises(PlatformError, match=rf"blob {image.layers[layer].digest} of \d+ bytes is corrupt"):
        copy(staging, target_of(prod), image)
    assert target_of(prod).manifest(TAG) is None
    assert not prod.blob(image.layers[layer].digest).exists()


def test_a_corrupt_manifest_is_refused(staging: RunningRegistry, prod: RunningRegistry) -> None:
    image = push_image(staging.repository(), TAG, [b"code"])
    stored = staging.blob(image.digest)
    stored.write_bytes(stored.read_bytes().replace(b"schemaVersion", b"schemaVersiom"))
    with pytest.raises(PlatformError, match=rf"{image.digest}"):
        copy(staging, target_of(prod), image)
    assert target_of(prod).manifest(TAG) is None


def test_an_interrupted_upload_is_tried_once_more(staging: RunningRegistry, prod: RunningRegistry) -> None:
    image = push_image(staging.repository(), TAG, [LARGE])
    with cutting_proxy(prod.port, after=1_000_000, cuts=1) as proxy:
        copied, lines = copy(staging, target_of(prod, port=proxy.port), image)
    assert proxy.was_cut == 1
    assert copied is not None
    assert copied.blobs == 2
    assert target_of(prod).manifest(TAG) == image
    assert len([line for line in lines if "trying once more" in line]) == 1


def test_an_upload_that_is_interrupted_twice_fails(staging: RunningRegistry, prod: RunningRegistry) -> None:
    image = push_image(staging.repository(), TAG, [LARGE])
    with (
        cutting_proxy(prod.port, after=1_000_000, cuts=2) as proxy,
        pytest.raises(PlatformError, match="broke 2 times"),
    ):
        copy(staging, target_of(prod, port=proxy.port), image)
    assert target_of(prod).manifest(TAG) is None


def test_an_image_that_the_source_lacks_is_refused(staging: RunningRegistry, prod: RunningRegistry) -> None:
    image = push_image(prod.repository(), TAG, [b"code"])
    with pytest.raises(RefusedError, match=f"has no image {image.digest}"):
        copy(staging, target_of(prod), image)


def test_another_image_under_the_tag_is_refused(staging: RunningRegistry, prod: RunningRegistry) -> None:
    other = push_image(target_of(prod), TAG, [b"other code"])
    image = push_image(staging.repository(), TAG, [b"code"])
    with pytest.raises(RefusedError, match=f"has {other.digest} under tag {TAG}"):
        copy(staging, target_of(prod), image)
    assert target_of(prod).manifest(TAG) == other


def test_wrong_credentials_are_refused(staging: RunningRegistry, prod: RunningRegistry) -> None:
    image = push_image(staging.repository(), TAG, [b"code"])
    stranger = RemoteRepository(f"http://127.0.0.1:{prod.port}", "rtp-prod/trainer", "Basic QVdTOndyb25n")
    with pytest.raises(RefusedError, match="HTTP status 401"):
        copy(staging, stranger, image)


def test_a_registry_that_does_not_answer_is_named(staging: RunningRegistry, tmp_path: Path) -> None:
    image = push_image(staging.repository(), TAG, [b"code"])
    with registry(tmp_path / "gone") as gone:
        target = target_of(gone)
    with pytest.raises(PlatformError, match=rf"registry 127\.0\.0\.1:{gone.port}/rtp-prod/trainer"):
        copy(staging, target, image)


def test_layers_have_size_and_instruction(staging: RunningRegistry) -> None:
    repository = staging.repository()
    image = push_image(repository, TAG, [LARGE, b"code"])
    layers = read_layers(repository, image)
    assert [(one.size, one.instruction) for one in layers] == [
        (image.layers[0].size, "COPY layer0 /"),
        (image.layers[1].size, "COPY layer1 /"),
    ]
    index = push_index(repository, "index", [image])
    assert read_layers(repository, index) == layers
    assert layer_table("trainer", layers).title == "trainer: 3.0 MB in 2 layers"
