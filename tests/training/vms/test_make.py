"""The make targets of clusters of virtual machines."""

from __future__ import annotations

from itertools import pairwise

from tests.makefile import command, make


def test_ray_cluster_passes_each_host_and_words_with_spaces_and_quotes() -> None:
    typed = ["HOSTS=10.0.0.1 10.0.0.2", "SSH_USER=me", "RUNS=/nfs/my runs", "SSH_KEY=it's"]
    words = [
        "--host",
        "10.0.0.1",
        "--host",
        "10.0.0.2",
        "--ssh-user",
        "me",
        "--ssh-key",
        "it's",
        "--runs",
        "/nfs/my runs",
    ]
    assert command("ray-cluster", *typed) == ["-m", "training", "ray-cluster", *words]


def test_commands_on_jobs_take_a_launcher_file_and_others_refuse_it_instead_of_working_here() -> None:
    assert ("--ray", "my lab.yaml") in pairwise(command("train", "RAY=my lab.yaml"))
    for targets in (("resize",), ("notebook",), ("jobs", "resize")):
        refused = make("--dry-run", *targets, "RAY=lab.yaml")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "RAY=file.yaml is for train, resume, logs, stop and jobs" in refused.stderr
