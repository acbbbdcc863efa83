"""The stack's outputs: found, and of this checkout's release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.spec.errors import RefusedError, SettingsError
from tests.training.cluster.stage import dev_outputs, target
from training.cluster.target import find_target, find_team


def written(folder: Path, **changes: Any) -> Path:  # noqa: ANN401 - any output
    """A file with the dev stack's outputs, some of them replaced."""
    file = folder / "outputs.json"
    file.write_text(json.dumps({**dev_outputs(), **changes}))
    return file


def test_the_outputs_may_lie_in_a_file(tmp_path: Path) -> None:
    assert find_target("dev", file=written(tmp_path), environment={}).outputs == target().outputs


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    environment = {"RTP_STACK_OUTPUTS": str(written(tmp_path))}
    assert find_target("dev", file=None, environment=environment).outputs.environment == "dev"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="absent"):
        find_target("dev", file=tmp_path / "absent", environment={})


def test_the_outputs_of_another_environment_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="outputs of environment dev, not of prod"):
        find_target("prod", file=written(tmp_path), environment={})


def test_a_stack_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"the stack is 9\.9\.9"):
        find_target("dev", file=written(tmp_path, platform="9.9.9"), environment={})


def test_without_pulumi_and_without_a_file_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RefusedError, match="no `pulumi` on PATH"):
        find_target("dev", file=None, environment={})


def test_one_of_several_teams_has_to_be_named() -> None:
    with pytest.raises(SettingsError, match=r"has 2 teams, and none is named\n.*--team, one of research, platform"):
        find_team(target().outputs, None)


def test_the_only_team_need_not_be_named() -> None:
    (team, *_) = dev_outputs()["teams"]
    assert find_team(target(teams=[team]).outputs, None).name == team["name"]


def test_an_unknown_team_is_answered_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"has no team reserch\n.*did you mean research"):
        find_team(target().outputs, "reserch")
