"""Images without a registry."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from infra.lifecycle.sandbox.node.images import import_image, write_image
from infra.spec.errors import RefusedError, SettingsError


def test_an_image_has_its_files_in_one_layer_with_the_layers_digest(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    write_image(tmp_path / "image.tar", name="a/b:1", files={"/bin/sh": program}, entrypoint=["/bin/sh"])
    with tarfile.open(tmp_path / "image.tar") as archive:
        parts = {entry.name: archive.extractfile(entry) for entry in archive}
        data = {name: file.read() for name, file in parts.items() if file is not None}
    (manifest,) = json.loads(data["manifest.json"])
    assert manifest == {"Config": "config.json", "RepoTags": ["a/b:1"], "Layers": ["layer.tar"]}
    configuration = json.loads(data["config.json"])
    assert configuration["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(data['layer.tar']).hexdigest()}"]
    assert configuration["config"]["Entrypoint"] == ["/bin/sh"]
    (tmp_path / "layer.tar").write_bytes(data["layer.tar"])
    with tarfile.open(tmp_path / "layer.tar") as layer:
        assert [(entry.name, entry.mode, entry.size) for entry in layer] == [("bin/sh", 0o755, 10)]


def test_a_missing_archive_and_a_sandbox_without_real_nodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"image\.tar: no such file"):
        import_image(tmp_path / "sandbox", tmp_path / "image.tar")
    (tmp_path / "image.tar").touch()
    with pytest.raises(RefusedError, match=r"(?s)has no real node.*make sandbox REAL=1"):
        import_image(tmp_path / "sandbox", tmp_path / "image.tar")
