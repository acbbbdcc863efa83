"""Our images in a sandbox's registry: a real engine, a real registry, and an image that is small."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from infra.lifecycle.image import engines
from infra.lifecycle.image.distribution import Manifest
from infra.lifecycle.image.plain_registry import PlainRegistry
from infra.lifecycle.image.plan import BASE, RDS_CERTIFICATES
from infra.lifecycle.sandbox.images import publish as module
from infra.lifecycle.sandbox.images.publish import base_image, publish, sandbox_build
from infra.lifecycle.sandbox.images.release import NO_AUTHORITY, sandbox_release
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.release import load_release
from tests.engines.image_builder import ImageBuilder
from tests.engines.sandbox_registry import sandbox_registry
from tests.engines.small_disk import small_disk
from tests.infra.lifecycle.image.samples import checkout

pytestmark = pytest.mark.extended

CODE = "platform_charts/images/mlflow_server/module.py"
DOCKERFILE = """ARG PYTHON_IMAGE
ARG RUNTIME_IMAGE=runtime
FROM ${PYTHON_IMAGE} AS runtime
RUN head -c 1000000 /dev/urandom > /packages
FROM ${PYTHON_IMAGE} AS certificates
ARG RDS_CERTIFICATES_URL
ARG RDS_CERTIFICATES_SHA256
RUN python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' "${RDS_CERTIFICATES_URL}" /rds.pem \\
    && printf '%s  /rds.pem\\n' "${RDS_CERTIFICATES_SHA256}" | sha256sum --check --quiet
FROM ${RUNTIME_IMAGE} AS mlflow
COPY platform_charts/images/mlflow_server /code
COPY --from=certificates /rds.pem /rds.pem
"""


@dataclass
class Publisher:
    """Publishes a small image of MLflow's name, and keeps what is printed."""

    folder: Path
    checkout: Path
    registry: PlainRegistry
    said: list[str] = field(default_factory=list)

    def __call__(self, storage: Path | None = None) -> Manifest:
        self.said.clear()
        digests = publish(
            self.registry,
            logs=self.folder / "logs",
            say=self.said.append,
            names=["mlflow"],
            root=self.checkout,
            storage=storage,
        )
        manifest = self.registry.remote(load_release().images["mlflow"]).manifest(digests["mlflow"])
        assert manifest is not None
        return manifest


@pytest.fixture
def publisher(builder: ImageBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    monkeypatch.setattr(engines, "ENGINES", (builder.engine,))
    folder = checkout(tmp_path / "checkout", "mlflow")
    (folder / "platform_charts/images/mlflow_server/Dockerfile").write_text(DOCKERFILE)
    with sandbox_registry(tmp_path / "registry") as host:
        yield Publisher(tmp_path, folder, PlainRegistry(host, "rtp-dev"))


def test_an_image_is_built_once_and_new_code_is_a_small_layer(publisher: Publisher, builder: ImageBuilder) -> None:
    first = publisher()
    assert any(line.startswith("mlflow: built and pushed in ") for line in publisher.said)
    warned = "\n".join(line for line in publisher.said if line.startswith("WARNING: "))
    assert f"{builder.base} is made of this" in warned
    assert f"rmi {builder.base}" in warned
    log = publisher.folder / "logs/mlflow.log"
    assert "STEP" in log.read_text()
    log.unlink()
    assert publisher() == first
    assert not log.exists()
    (publisher.checkout / CODE).write_text("changed, and not committed\n")
    second = publisher()
    assert second.digest != first.digest
    new = set(second.layers) - set(first.layers)
    assert sum(layer.size for layer in new) < 5_000
    assert {layer for layer in first.layers if layer.size > 500_000} <= set(second.layers)
    assert sum(layer.size > 500_000 for layer in first.layers) == 2  # the base, and the packages


def test_a_build_that_fails_shows_its_end(publisher: Publisher) -> None:
    with (publisher.checkout / "platform_charts/images/mlflow_server/Dockerfile").open("a") as file:
        file.write("RUN echo this is wrong && exit 3\n")
    with pytest.raises(PlatformError, match=r"the end of \S+/mlflow\.log:(?s:.*)this is wrong(?s:.*)exit status 3"):
        publisher()


def test_too_small_a_disk_is_refused(publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(tmp_path / "disk", size="10m") as disk:
        monkeypatch.setattr(module, "has_runtime", lambda *_: False)
        with pytest.raises(RefusedError, match=r"10\.5 MB free, 800\.0 MB needed: 800\.0 MB for mlflow in the"):
            publisher(storage=disk)
    assert not (publisher.folder / "logs").exists()


def test_the_releases_base_is_preferred(builder: ImageBuilder) -> None:
    pinned = load_release().images[BASE].reference()
    builder.run("tag", builder.base, pinned)
    try:
        assert base_image(builder.engine, say=print) == pinned
    finally:
        builder.run("rmi", pinned)  # this name of it only


def test_nodes_without_gpus_get_the_locked_torch_or_the_one_that_is_asked_for(tmp_path: Path) -> None:
    root = checkout(tmp_path, "trainer")
    locked = sandbox_build("trainer", base="localhost/base:1", root=root, environment={})
    assert (locked.target, locked.torch) == ("cpu", None)
    assert locked.arguments["PYTHON_IMAGE"] == "localhost/base:1"
    assert "EFA_URL" not in locked.arguments
    chosen = sandbox_build("trainer", base="localhost/base:1", root=root, environment={"TORCH_VERSION": "2.15.0+cpu"})
    assert chosen.arguments["TORCH_VERSION"] == "2.15.0+cpu"
    assert json.loads(chosen.arguments["BUILD"])["base"] == "localhost/base:1"


def test_the_authority_of_the_database_travels_in_the_address_of_the_download() -> None:
    for authority in (NO_AUTHORITY, b"-----BEGIN CERTIFICATE-----\n"):
        download = sandbox_release(load_release(), base="a:1", authority=authority).downloads[RDS_CERTIFICATES]
        assert base64.b64decode(download.address().rpartition(",")[2]) == authority
        assert download.sha256 == hashlib.sha256(authority).hexdigest()
