"""The stack and the team of a command: read from outputs of this checkout's release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.spec.errors import PlatformError, RefusedError
from infra.spec.errors import SettingsError as StackSettingsError
from tests.training.cluster.team_cluster import dev_outputs, target
from training.cluster.context import read_target, team_named
from training.errors import SettingsError


def written(folder: Path, **changes: Any) -> Path:  # noqa: ANN401 - any output
    """A file with the dev stack's outputs, some of them replaced."""
    file = folder / "outputs.json"
    file.write_text(json.dumps({**dev_outputs(), **changes}))
    return file


def test_the_outputs_are_read_from_a_file_that_the_environment_may_name(tmp_path: Path) -> None:
    file = written(tmp_path)
    for given, environment in ((file, {}), (None, {"RTP_STACK_OUTPUTS": str(file)})):
        assert read_target("dev", file=given, environment=environment).outputs == target().outputs


def test_outputs_that_are_missing_or_of_another_environment_or_version_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StackSettingsError, match="absent"):
        read_target("dev", file=tmp_path / "absent", environment={})
    with pytest.raises(SettingsError, match="outputs of environment dev, not of prod"):
        read_target("prod", file=written(tmp_path), environment={})
    with pytest.raises(RefusedError, match=r"the stack is 9\.9\.9"):
        read_target("dev", file=written(tmp_path, platform="9.9.9"), environment={})


def test_without_pulumi_and_without_a_file_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PlatformError, match="no `pulumi` on PATH"):
        read_target("dev", file=None, environment={})


def test_a_team_must_be_named_unless_there_is_one() -> None:
    (team, *_) = dev_outputs()["teams"]
    assert team_named(target(teams=[team]).outputs, None).name == team["name"]
    with pytest.raises(SettingsError, match=r"has 2 teams, choose one\n.*\(--team\), one of research, platform"):
        team_named(target().outputs, None)
    with pytest.raises(SettingsError, match=r"has no team reserch\n.*did you mean research"):
        team_named(target().outputs, "reserch")
