"""The registry of a sandbox, and containerd that pulls from it; both are real."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tarfile import TarFile, TarInfo

import pytest

from infra.lifecycle.image.plain_registry import PlainRegistry
from infra.lifecycle.sandbox.images.registry import containerd_hosts, require_free, storage_folder
from infra.lifecycle.sandbox.modules import cache_root
from infra.lifecycle.sandbox.processes import Process
from infra.spec.errors import RefusedError
from infra.spec.release import load_release
from tests.engines.oci_registry import push_image
from tests.engines.ray_cluster import short_folder
from tests.engines.report_table import ran, skipped
from tests.engines.sandbox_registry import sandbox_registry

TRAINER = load_release().images["trainer"]


def layer(name: str, content: bytes) -> bytes:
    found = BytesIO()
    with TarFile(fileobj=found, mode="w") as archive:
        entry = TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, BytesIO(content))
    return found.getvalue()


@contextmanager
def containerd() -> Iterator[list[str]]:
    """A containerd of its own; gives the start of a `ctr` command line."""
    programs = [shutil.which(name) for name in ("containerd", "ctr")]
    if None in programs or os.geteuid() != 0:
        skipped("containerd", "no containerd on PATH, or not root", "apt-get install containerd, and run as root")
    with short_folder() as folder:
        socket_file = folder / "containerd.sock"
        options = [f"--root={folder}/root", f"--state={folder}/state", f"--address={socket_file}"]
        process = Process(["containerd", "--config=/dev/null", *options], log=folder / "log")
        try:
            process.await_(socket_file.exists, seconds=60)
            ran("containerd")
            yield ["ctr", f"--address={socket_file}"]
        finally:
            process.stop()


def test_images_outlive_the_registry_and_what_it_lacks_is_named(tmp_path: Path) -> None:
    with sandbox_registry(tmp_path) as host:
        registry = PlainRegistry(host, "rtp-dev")
        assert registry.digest(TRAINER, "a") is None
        pushed = push_image(registry.remote(TRAINER), "a", [b"packages"])
        assert registry.digest(TRAINER, "a") == pushed.digest
        release = load_release().with_digests({"trainer": pushed.digest})
        assert registry.missing(release) == (("session", "digest unresolved"), ("mlflow", "digest unresolved"))
        there = {"trainer": pushed.digest, "session": pushed.digest}
        other = release.with_digests({**there, "mlflow": f"sha256:{'0' * 64}"})
        assert registry.missing(other) == (("mlflow", "not in the registry"),)
    with sandbox_registry(tmp_path, port=int(host.rpartition(":")[2])) as again:
        assert again == host
        assert PlainRegistry(again, "rtp-dev").digest(TRAINER, pushed.digest) == pushed.digest


def test_containerd_pulls_by_digest_without_tls(tmp_path: Path) -> None:
    with sandbox_registry(tmp_path / "registry") as host, containerd() as ctr:
        registry = PlainRegistry(host, "rtp-dev")
        pushed = push_image(registry.remote(TRAINER), "a", [layer("etc/hello", b"hello\n")])
        for name, text in containerd_hosts(host).items():
            file = tmp_path / "hosts" / name
            file.parent.mkdir(parents=True)
            file.write_text(text)
        reference = f"{registry.repository(TRAINER)}@{pushed.digest}"
        pull = [*ctr, "images", "pull", f"--hosts-dir={tmp_path / 'hosts'}", "--snapshotter=native", reference]
        done = subprocess.run(pull, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        listed = subprocess.run([*ctr, "images", "list", "-q"], capture_output=True, text=True, check=True).stdout
        assert listed.split() == [reference]


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(RefusedError, match=rf"cannot listen at 127\.0\.0\.1:{port}: .*in use\n.*ss -ltnp"):
            require_free("127.0.0.1", port)
    require_free("127.0.0.1", port)


def test_the_images_are_kept_beside_the_engines(tmp_path: Path) -> None:
    environment = {"RTP_ENGINES": str(tmp_path / "engines")}
    assert storage_folder(environment) == tmp_path / "registry"
    assert not storage_folder(environment).is_relative_to(cache_root(environment))
    assert storage_folder({**environment, "RTP_REGISTRY": str(tmp_path / "mine")}) == tmp_path / "mine"
