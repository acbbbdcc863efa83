"""A real OCI registry on loopback (CNCF Distribution), with a login, and small images in it."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.lifecycle.image.distribution import Descriptor, Manifest, RemoteRepository, basic
from infra.lifecycle.sandbox.modules import REGISTRY
from tests.engines.engines_build import await_build
from tests.engines.ports import free_port
from tests.engines.report_table import ran, skipped
from tests.engines.servers import answers, running

NAME = "OCI registry"
USER, PASSWORD = "AWS", "secret"
_BCRYPT = "$2b$05$CvM9Jbwip2pOurtWVt0dkecVwuTisYk2IpQoho9mIc1EmHnVV3Ug."
"""Hash of PASSWORD; a registry reads no other kind of hash."""
_IMAGE = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True)
class RunningRegistry:
    """A registry, and the folder of its blobs."""

    port: int
    folder: Path

    def repository(self, name: str = "rtp-staging/trainer", *, port: int | None = None) -> RemoteRepository:
        """A repository, logged in; `port` is that of a proxy."""
        return RemoteRepository(f"http://127.0.0.1:{port or self.port}", name, basic(USER, PASSWORD))

    def blob(self, digest: str) -> Path:
        """The file of a blob."""
        value = digest.removeprefix("sha256:")
        return self.folder / f"docker/registry/v2/blobs/sha256/{value[:2]}/{value}/data"


@contextmanager
def registry(folder: Path) -> Iterator[RunningRegistry]:
    """Run a registry that keeps its blobs in a folder; skips without the program."""
    await_build(os.environ, REGISTRY)
    program = shutil.which("registry", path=str(REGISTRY.cache_folder(os.environ)))
    if program is None:
        skipped(NAME, "not built", "make engines")
    folder.mkdir(parents=True)
    (folder / "users").write_text(f"{USER}:{_BCRYPT}\n")
    port = free_port()
    settings = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(folder)}},
        "http": {"addr": f"127.0.0.1:{port}"},
        "auth": {"htpasswd": {"realm": "test", "path": str(folder / "users")}},
        "log": {"level": "warn"},
    }
    (folder / "config.yml").write_text(yaml.safe_dump(settings))
    command: list[str | Path] = [program, "serve", folder / "config.yml"]
    ready = f"http://127.0.0.1:{port}/v2/"
    quiet = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
    with running(command, log=folder / "log", is_ready=lambda: answers(ready, status=401), env=quiet):
        ran(NAME)
        yield RunningRegistry(port, folder)


def push_image(
    repository: RemoteRepository, tag: str, layers: Sequence[bytes], *, architecture: str = "amd64"
) -> Manifest:
    """Push an image with these layers; returns its manifest."""
    history = [{"created_by": f"COPY layer{number} /"} for number, _ in enumerate(layers)]
    config = {
        "architecture": architecture,
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]},
        "history": [*history, {"created_by": "ENV", "empty_layer": True}],
    }
    stored = [push_blob(repository, gzip.compress(layer, mtime=0)) for layer in layers]
    manifest = {
        "schemaVersion": 2,
        "mediaType": _IMAGE,
        "config": _entry(
            push_blob(repository, json.dumps(config).encode()), "application/vnd.oci.image.config.v1+json"
        ),
        "layers": [_entry(one, "application/vnd.oci.image.layer.v1.tar+gzip") for one in stored],
    }
    return _put(repository, tag, manifest)


def push_index(repository: RemoteRepository, tag: str, images: Sequence[Manifest]) -> Manifest:
    """Push an index of images; returns it."""
    entries = [_entry(Descriptor(one.digest, len(one.body)), _IMAGE) for one in images]
    return _put(repository, tag, {"schemaVersion": 2, "mediaType": _INDEX, "manifests": entries})


def push_blob(repository: RemoteRepository, content: bytes) -> Descriptor:
    """Push a blob."""
    blob = Descriptor(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))
    repository.upload(blob, [content])
    return blob


def _entry(blob: Descriptor, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": blob.digest, "size": blob.size}


def _put(repository: RemoteRepository, tag: str, document: dict[str, Any]) -> Manifest:
    manifest = Manifest(json.dumps(document).encode(), document["mediaType"])
    repository.put_manifest(tag, manifest)
    return manifest
