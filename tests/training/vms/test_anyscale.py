"""Jobs for Anyscale, read by the models of Anyscale's own package where it is installed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.spec.errors import RefusedError
from tests.engines.report_table import ran, skipped
from tests.processes import run_command
from tests.training.cli.command import assert_refused
from tests.training.cluster.team_cluster import outputs_file
from tests.training.cluster.team_cluster import target as dev_stack
from training.cli import main
from training.cluster.context import team_named
from training.config.load import load_settings
from training.vms.anyscale import AnyscaleJob, render_compute, render_job
from training.vms.clusters import NodeRange

_NAME = "Anyscale models"
_READ = """
import json, sys
from anyscale.compute_config.models import ComputeConfig
from anyscale.job.models import JobConfig
for kind, document in json.load(sys.stdin):
    try:
        {"job": JobConfig, "compute": ComputeConfig}[kind].from_dict(document)
        print("accepted")
    except (TypeError, ValueError) as error:
        print("refused")
"""


def _job(**changes: Any) -> AnyscaleJob:  # noqa: ANN401 - fields of several types
    given: dict[str, Any] = {
        "name": "first",
        "cloud": "lab",
        "workers": NodeRange(0, 4),
        "group": "a10g",
        "is_spot": False,
        "has_code": False,
    }
    return AnyscaleJob(**{**given, **changes})


def _documents(**changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401 - as above
    job, stack = _job(**changes), dev_stack()
    compute = render_compute(job, stack)
    return render_job(job, stack, team_named(stack.outputs, "research"), compute=compute), compute


def _read(*documents: tuple[str, dict[str, Any]]) -> list[str]:
    """What Anyscale's models say of each document."""
    folder = os.environ.get("ANYSCALE_FOLDER")
    if folder is None:
        skipped(_NAME, "ANYSCALE_FOLDER is not set", "tests/training/vms/anyscale.lock says how")
    reader = [sys.executable, "-c", _READ]
    done = run_command(reader, env={**os.environ, "PYTHONPATH": folder}, given=json.dumps(documents))
    assert done.returncode == 0, done.stderr
    ran(_NAME)
    return done.stdout.split()


def test_anyscale_s_models_accept_the_job_and_its_machines_and_refuse_wrong_fields() -> None:
    found = [_documents(), _documents(is_spot=True, has_code=True, workers=NodeRange(2, 2))]
    right = [one for job, compute in found for one in (("job", job), ("compute", compute))]
    job, compute = found[0]
    workers = [{**compute["worker_nodes"][0], "market_type": "CHEAP"}]
    wrong = [("job", {**job, "entrypoint": ""}), ("job", {**job, "nonsense": 1})]
    wrong.append(("compute", {**compute, "worker_nodes": workers}))
    assert _read(*right, *wrong) == ["accepted"] * 4 + ["refused"] * 3


def test_workers_are_the_group_s_and_spot_where_asked() -> None:
    groups = {one.name: one for one in dev_stack().outputs.gpu_groups}
    for group, is_spot, market in (
        ("a10g", False, "ON_DEMAND"),
        ("a10g", True, "PREFER_SPOT"),
        ("t4", False, "PREFER_SPOT"),
    ):
        _, compute = _documents(group=group, is_spot=is_spot)
        [workers] = compute["worker_nodes"]
        assert (workers["instance_type"], workers["market_type"]) == (groups[group].instance_type, market)
        assert (workers["min_nodes"], workers["max_nodes"]) == (0, 4)
    with pytest.raises(RefusedError, match="make up ENV=dev"):
        render_compute(_job(), dev_stack(head_instance_type=None))


def test_the_command_writes_a_folder_whose_settings_the_trainer_reads_and_refuses_wrong_input(tmp_path: Path) -> None:
    out, outputs = tmp_path / "job", str(outputs_file(tmp_path))
    stack = ["anyscale", "--env", "dev", "--outputs", outputs, "--team", "research", "--cloud", "lab"]
    for options, named in (
        (("--workers", "4-1"), "write 1-4"),
        (("--data-path", "photos", "--dataset", "image_folder"), "as the machines see it"),
        (("--group", "a1"), "a10g"),
    ):
        assert_refused(2, named, *stack, *options, "--out", str(out))
        assert not out.exists()
    wanted = ["--group", "a10g", "--name", "first", "--num-workers", "4", "--use-gpu", "--out", str(out)]
    assert main([*stack, *wanted]) == 0
    job = yaml.safe_load((out / "job.yaml").read_text())
    assert job["compute_config"] == yaml.safe_load((out / "compute.yaml").read_text())
    settings = load_settings([str(out / "settings.yaml")], environment={})
    assert settings.run.name == job["name"] == "first"
    assert (settings.scale.workers, settings.scale.gpu, settings.scale.address) == (4, True, "auto")
    assert settings.checkpoint.remote == f"s3://{dev_stack().outputs.storage.checkpoint_bucket}/research"
