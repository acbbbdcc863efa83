"""A recorded stack whose nodes pull our images."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from infra.lifecycle.image.plain_registry import PlainRegistry
from infra.lifecycle.sandbox.images.running import running_sandbox
from infra.lifecycle.sandbox.recorded import Recorded, recorded
from infra.spec.release import load_release
from platform_charts.objects.phases import platform_objects
from tests.infra.aws.graphs import settings_of

HOST = "10.208.0.1:5000"
REPOSITORIES = {name: f"{HOST}/rtp-dev/{name}" for name in ("trainer", "mlflow")}
DIGESTS = {"trainer": f"sha256:{'1' * 64}", "mlflow": f"sha256:{'2' * 64}"}


@cache
def stack() -> Recorded:
    return recorded(settings_of("dev"))


def test_its_objects_name_the_images_by_digest_and_without_images_as_those_of_a_stack() -> None:
    found = stack().with_images(REPOSITORIES, DIGESTS)
    release = load_release()
    text = json.dumps(
        platform_objects(settings_of("dev"), release.with_digests(found.outputs.digests), found.facts), default=dict
    )
    for name, digest in DIGESTS.items():
        assert f'"{HOST}/rtp-dev/{name}@{digest}"' in text
    assert "not-pushed" not in text
    text = json.dumps(platform_objects(settings_of("dev"), release, stack().facts), default=dict)
    for repository in stack().outputs.registries.values():
        assert f'"{repository}:not-pushed"' in text


def test_a_sandbox_is_known_by_the_outputs_of_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RTP_STACK_OUTPUTS", raising=False)
    assert running_sandbox("dev") is None
    file = tmp_path / "outputs.json"
    file.write_text(stack().outputs.model_dump_json())
    monkeypatch.setenv("RTP_STACK_OUTPUTS", str(file))
    assert running_sandbox("dev") is None
    file.write_text(stack().with_images(REPOSITORIES, DIGESTS).outputs.model_dump_json())
    found = running_sandbox("dev")
    assert found is not None
    assert found.registry == PlainRegistry(HOST, "rtp-dev")
    assert found.outputs.digests == DIGESTS
