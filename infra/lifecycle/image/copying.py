"""Copy an image from one repository to another, bit for bit: blobs first, then the manifests, the tag last.

Every blob is hashed while it is streamed, so a corrupt one never becomes part of the target. What the target has is not sent.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import urllib3

from infra.lifecycle.image.distribution import Descriptor, Manifest, RemoteRepository
from infra.lifecycle.image.layers import size_text
from infra.spec.errors import PlatformError, RefusedError, reason_of

_ATTEMPTS = 2
"""Attempts per blob: the second one starts from the beginning, because an interrupted upload cannot be resumed in ECR's API."""


class Copied(NamedTuple):
    """What a copy sent: number of blobs, and their size in bytes; the manifests are not counted."""

    blobs: int
    size: int


def copy_image(
    source: RemoteRepository, target: RemoteRepository, *, digest: str, tag: str, say: Callable[[str], None]
) -> Copied | None:
    """Copy an image, or an index with all its images, and read its digest back.

    Args:
        source: repository that has the image.
        target: repository that gets it.
        digest: digest of the image in the source.
        tag: tag in the target.
        say: prints a line of progress per blob.

    Returns:
        what was sent; None if the target has the image under this tag.

    Raises:
        RefusedError: the source lacks the image, or the target has another one under the tag.
        PlatformError: a blob is corrupt, a registry failed, or a connection broke twice.
    """
    image = _manifest(source, digest)
    there = target.manifest(tag)
    if there is not None and there.digest != digest:
        raise RefusedError(
            f"{target} has {there.digest} under tag {tag}, which cannot be moved; the release has {digest}",
            remedy="build the image again, which gives another tag, or delete this tag in the target",
        )
    if there is not None:
        return None
    images = [image, *_descendants(source, image)]
    copied = _copy_blobs(source, target, images, say)
    for child in reversed(images[1:]):
        target.put_manifest(child.digest, child)
    target.put_manifest(tag, image)
    written = target.manifest(tag)
    if written is None or written.digest != digest:
        raise PlatformError(f"{target} has {written and written.digest} under tag {tag} after the copy of {digest}")
    return copied


def _manifest(source: RemoteRepository, digest: str) -> Manifest:
    found = source.manifest(digest)
    if found is None:
        raise RefusedError(
            f"{source} has no image {digest}, which the release names",
            remedy="push it there first: make image PUSH=1 ENV=…",
        )
    if found.digest != digest:
        raise PlatformError(f"{source}: manifest {digest} is corrupt, its digest is {found.digest}")
    return found


def _descendants(source: RemoteRepository, image: Manifest) -> Iterator[Manifest]:
    """The images of an index, a parent before its children."""
    for child in image.children:
        found = _manifest(source, child.digest)
        yield found
        yield from _descendants(source, found)


def _copy_blobs(
    source: RemoteRepository, target: RemoteRepository, images: list[Manifest], say: Callable[[str], None]
) -> Copied:
    blobs = list(dict.fromkeys(blob for image in images for blob in image.blobs))
    copied = Copied(0, 0)
    for number, blob in enumerate(blobs, 1):
        line = f"blob {number} of {len(blobs)}, {blob.digest[:19]}, {size_text(blob.size)}"
        if target.has_blob(blob.digest):
            say(f"{line}: already there")
            continue
        started = time.monotonic()
        _copy_blob(source, target, blob, say)
        say(f"{line}: copied in {time.monotonic() - started:.0f} s")
        copied = Copied(copied.blobs + 1, copied.size + blob.size)
    return copied


def _copy_blob(
    source: RemoteRepository, target: RemoteRepository, blob: Descriptor, say: Callable[[str], None]
) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with source.open_blob(blob.digest) as chunks:
                target.upload(blob, _verified(chunks, blob, source=str(source)))
        except urllib3.exceptions.HTTPError as error:
            if attempt == _ATTEMPTS:
                raise PlatformError(
                    f"blob {blob.digest}: the connection broke {attempt} times: {reason_of(error)}",
                    remedy="run the command again; blobs that were copied are not sent again",
                ) from error
            say(f"blob {blob.digest[:19]}: the connection broke ({reason_of(error)}); trying once more")
        else:
            return


def _verified(chunks: Iterable[bytes], blob: Descriptor, *, source: str) -> Iterator[bytes]:
    """The chunks of a blob; raises instead of handing on the last one if the whole has another hash or size."""
    found, size = hashlib.sha256(), 0
    for chunk in chunks:
        found.update(chunk)
        size += len(chunk)
        if size >= blob.size and (size, f"sha256:{found.hexdigest()}") != (blob.size, blob.digest):
            raise PlatformError(
                f"{source}: blob {blob.digest} of {blob.size} bytes is corrupt: it begins with {size} bytes of "
                f"sha256:{found.hexdigest()}",
                remedy="build and push the image again; the target has no part of this blob",
            )
        yield chunk
