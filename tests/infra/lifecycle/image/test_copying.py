"""Copies between two real registries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from infra.lifecycle.image.copying import Copied, copy_image
from infra.lifecycle.image.distribution import Manifest, RemoteRepository
from infra.lifecycle.image.layers import layer_table, read_layers
from infra.spec.errors import PlatformError, RefusedError
from tests.engines.oci_registry import RunningRegistry, push_image, push_index, registry
from tests.engines.tcp_proxy import Proxy

TAG = "0.1.0-cuda-0123456789ab"
NUMBERS = count()


def large() -> bytes:
    """A layer of several chunks, which no other test has."""
    return os.urandom(3_000_000)


@dataclass(frozen=True)
class Pair:
    """A repository that has an image, and one that gets it, in two registries."""

    staging: RunningRegistry
    prod: RunningRegistry
    source: RemoteRepository
    name: str

    def target(self, *, port: int | None = None) -> RemoteRepository:
        """The repository that gets the image; `port` is that of a proxy."""
        return self.prod.repository(self.name, port=port)

    def push(self, *layers: bytes) -> Manifest:
        return push_image(self.source, TAG, layers)

    def copy(self, image: Manifest, target: RemoteRepository | None = None) -> tuple[Copied | None, list[str]]:
        """Copy an image; gives also the lines of progress."""
        lines: list[str] = []
        to = target or self.target()
        return copy_image(self.source, to, digest=image.digest, tag=TAG, say=lines.append), lines


@pytest.fixture(scope="module")
def registries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningRegistry, RunningRegistry]]:
    folder = tmp_path_factory.mktemp("registries")
    with registry(folder / "staging") as staging, registry(folder / "prod") as prod:
        yield staging, prod


@pytest.fixture
def pair(registries: tuple[RunningRegistry, RunningRegistry]) -> Pair:
    staging, prod = registries
    number = next(NUMBERS)
    return Pair(staging, prod, staging.repository(f"rtp-staging/trainer{number}"), f"rtp-prod/trainer{number}")


def test_the_target_has_the_same_digest_and_bytes_and_a_second_copy_sends_nothing(pair: Pair) -> None:
    image = pair.push(large(), b"code")
    copied, lines = pair.copy(image)
    assert pair.target().manifest(TAG) == image
    assert copied == Copied(3, sum(blob.size for blob in image.blobs))
    for blob in image.blobs:
        assert pair.prod.blob(blob.digest).read_bytes() == pair.staging.blob(blob.digest).read_bytes()
    assert [line.split(",")[0] for line in lines] == [f"blob {number} of 3" for number in (1, 2, 3)]
    assert pair.copy(image) == (None, [])


def test_an_index_is_copied_with_every_platform(pair: Pair) -> None:
    names = "amd64", "arm64"
    platforms = [push_image(pair.source, name, [b"base", name.encode()], architecture=name) for name in names]
    index = push_index(pair.source, "both", platforms)
    copied, _ = pair.copy(index)
    assert pair.target().manifest(TAG) == index
    assert [pair.target().manifest(one.digest) for one in platforms] == platforms
    assert copied is not None
    assert copied.blobs == 5, "the platforms share a layer, which is copied once"


def test_only_layers_that_the_target_lacks_are_sent(pair: Pair) -> None:
    layer = large()
    push_image(pair.target(), "older", [layer, b"older code"])
    image = pair.push(layer, b"newer code")
    copied, lines = pair.copy(image)
    assert copied is not None
    assert copied.size < 1000
    there = [line for line in lines if line.endswith("already there")]
    assert there == [f"blob 2 of 3, {image.layers[0].digest[:19]}, 3.0 MB: already there"]


@pytest.mark.parametrize("layer", [0, 1])
def test_a_corrupt_layer_is_refused_and_the_target_stays_unchanged(pair: Pair, layer: int) -> None:
    image = pair.push(large(), os.urandom(100))
    stored = pair.staging.blob(image.layers[layer].digest)
    content = bytearray(stored.read_bytes())
    content[len(content) // 2] ^= 1
    stored.write_bytes(content)
    with pytest.raises(PlatformError, match=rf"blob {image.layers[layer].digest} of \d+ bytes is corrupt"):
        pair.copy(image)
    assert pair.target().manifest(TAG) is None
    assert not pair.prod.blob(image.layers[layer].digest).exists()


def test_a_corrupt_manifest_is_refused(pair: Pair) -> None:
    image = pair.push(os.urandom(100))
    stored = pair.staging.blob(image.digest)
    stored.write_bytes(stored.read_bytes().replace(b"schemaVersion", b"schemaVersiom"))
    with pytest.raises(PlatformError, match=rf"{image.digest}"):
        pair.copy(image)
    assert pair.target().manifest(TAG) is None


def test_an_interrupted_upload_is_tried_once_more(pair: Pair) -> None:
    image = pair.push(large())
    with (
        Proxy(pair.prod.port, after=1_000_000, cuts=2) as proxy,
        pytest.raises(PlatformError, match="broke 2 times"),
    ):
        pair.copy(image, pair.target(port=proxy.port))
    assert pair.target().manifest(TAG) is None
    with Proxy(pair.prod.port, after=1_000_000, cuts=1) as proxy:
        copied, lines = pair.copy(image, pair.target(port=proxy.port))
    assert proxy.was_cut == 1
    assert copied is not None
    assert pair.target().manifest(TAG) == image
    assert len([line for line in lines if "trying once more" in line]) == 1


def test_an_image_that_the_source_lacks_or_another_one_under_the_tag_is_refused(pair: Pair) -> None:
    other = push_image(pair.target(), TAG, [b"other code"])
    with pytest.raises(RefusedError, match=f"has no image {other.digest}"):
        pair.copy(other)
    image = pair.push(b"code")
    with pytest.raises(RefusedError, match=f"has {other.digest} under tag {TAG}"):
        pair.copy(image)
    assert pair.target().manifest(TAG) == other


def test_wrong_credentials_and_a_registry_that_does_not_answer_are_named(pair: Pair, tmp_path: Path) -> None:
    image = pair.push(b"code")
    stranger = RemoteRepository(f"http://127.0.0.1:{pair.prod.port}", pair.name, "Basic QVdTOndyb25n")
    with pytest.raises(RefusedError, match="HTTP status 401"):
        pair.copy(image, stranger)
    with registry(tmp_path / "gone") as gone:
        target = gone.repository(pair.name)
    with pytest.raises(PlatformError, match=rf"registry 127\.0\.0\.1:{gone.port}/{pair.name}"):
        pair.copy(image, target)


def test_layers_have_size_and_instruction(pair: Pair) -> None:
    image = pair.push(large(), b"code")
    layers = read_layers(pair.source, image)
    expected = [(image.layers[number].size, f"COPY layer{number} /") for number in range(2)]
    assert [(one.size, one.instruction) for one in layers] == expected
    index = push_index(pair.source, "index", [image])
    assert read_layers(pair.source, index) == layers
    assert layer_table("trainer", layers).title == "trainer: 3.0 MB in 2 layers"
