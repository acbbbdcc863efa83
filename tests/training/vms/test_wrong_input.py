"""What has no effect on a cluster of machines is refused before anything is asked of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.training.vms.clusters import own_file
from training.cli import main
from training.errors import ExitStatus


def test_it_is_refused_with_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(yaml.safe_dump(own_file()), encoding="utf-8")
    for (command, *options), named in (
        (["logs", "first", "--days", "3"], "--days=3"),
        (["logs", "first", "--rank", "1"], "the log of a rank is in its run's folder"),
        (["train", "--env", "dev"], "--env needs Kubernetes"),
        (["train", "--schedule", "0 2 * * *"], "--schedule needs Kubernetes"),
        (["train", "--dataset", "image_folder", "--data-path", "photos"], "data.path=photos is on this machine"),
    ):
        assert main([command, "--ray", str(file), *options]) == ExitStatus.WRONG_INPUT
        assert named in (said := capsys.readouterr().err)
        assert "remedy: " in said
    assert main(["jobs", "--ray", str(tmp_path / "none.yaml")]) == ExitStatus.WRONG_INPUT
    assert "none.yaml: no such file" in capsys.readouterr().err
