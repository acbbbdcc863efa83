"""The stand-in for the base image, built by a real engine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from infra.lifecycle.image.engines import Docker
from infra.lifecycle.sandbox.images import stand_in as module
from infra.lifecycle.sandbox.images.stand_in import known_stand_in, machine_files, stand_in
from infra.spec.errors import RefusedError
from tests.engines.image_builder import ImageBuilder

pytestmark = pytest.mark.extended

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def test_it_can_make_the_environment_and_the_user_of_an_image(builder: ImageBuilder) -> None:
    container = builder.run("from", builder.base).strip()
    assert known_stand_in(builder.engine, python=PYTHON) == builder.base, "it is built once"
    script = (
        "python3 -m venv /opt/x && /opt/x/bin/python -m pip --version && python3 -m pip --version && flock /tmp/lock true && "
        "groupadd --gid 1000 u && useradd --uid 1000 --gid 1000 --no-log-init --create-home --shell /usr/sbin/nologin u && id u"
    )
    assert "uid=1000(u) gid=1000(u)" in builder.run("run", container, "/bin/sh", "-c", script)


def test_another_python_cannot_stand_in_and_docker_cannot_build_on_it(builder: ImageBuilder) -> None:
    assert known_stand_in(Docker(), python=PYTHON) is None
    with pytest.raises(RefusedError, match=r"docker builds on images of registries only\n.*apt-get install buildah"):
        stand_in(Docker(), python=PYTHON, say=print)
    assert known_stand_in(builder.engine, python="3.9") is None
    with pytest.raises(RefusedError, match=rf"this Python {PYTHON} cannot .* images have 3\.9\n.*PYTHON=python3\.9"):
        stand_in(builder.engine, python="3.9", say=print)


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("bash", "cat"):
        (tmp_path / name).symlink_to("/bin/sh")
    monkeypatch.setattr(module, "_SYSTEM_PATH", str(tmp_path))
    with pytest.raises(RefusedError, match=r"needs basename, chmod, .*, flock, which this machine lacks\n") as refused:
        machine_files()
    assert "apt-get install coreutils dash" in refused.value.remedy
    assert " bash" not in refused.value.remedy
