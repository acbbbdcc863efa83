"""What has no effect on a cluster of machines is refused before anything is asked of it."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.training.cli.command import assert_refused
from tests.training.vms.clusters import own_file


def test_it_is_refused_with_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(yaml.safe_dump(own_file()), encoding="utf-8")
    for (command, *options), named in (
        (["logs", "first", "--days", "3"], "--days=3"),
        (["logs", "first", "--rank", "1"], "the log of a rank is in its run's folder"),
        (["train", "--env", "dev"], "--env needs Kubernetes"),
        (["train", "--schedule", "0 2 * * *"], "--schedule needs Kubernetes"),
        (["train", "--dataset", "image_folder", "--data-path", "photos"], "data.path=photos is on this machine"),
    ):
        for said in (named, "remedy: "):
            assert_refused(2, said, command, "--ray", str(file), *options)
    assert_refused(2, "none.yaml: no such file", "jobs", "--ray", str(tmp_path / "none.yaml"))
