"""Jobs for Anyscale, read by the models of Anyscale's own package where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.spec.errors import RefusedError
from tests.engines.report_table import ran, skipped
from tests.training.cli.command import ask
from tests.training.cluster.team_cluster import dev_outputs
from tests.training.cluster.team_cluster import target as dev_stack
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
    done = subprocess.run(
        [sys.executable, "-c", _READ],
        env={**os.environ, "PYTHONPATH": folder},
        input=json.dumps(documents),
        capture_output=True,
        text=True,
        check=True,
    )
    ran(_NAME)
    return done.stdout.split()


def test_anyscale_s_models_accept_the_job_and_its_machines() -> None:
    found = [_documents(), _documents(is_spot=True, has_code=True, workers=NodeRange(2, 2))]
    documents = [one for job, compute in found for one in (("job", job), ("compute", compute))]
    assert _read(*documents) == ["accepted"] * 4


def test_anyscale_s_models_refuse_wrong_fields() -> None:
    job, compute = _documents()
    workers = [{**compute["worker_nodes"][0], "market_type": "CHEAP"}]
    wrong = (
        ("job", {**job, "entrypoint": ""}),
        ("job", {**job, "nonsense": 1}),
        ("compute", {**compute, "worker_nodes": workers}),
    )
    assert _read(*wrong) == ["refused"] * 3


@pytest.mark.parametrize(
    ("group", "is_asked", "market"),
    [("a10g", False, "ON_DEMAND"), ("a10g", True, "PREFER_SPOT"), ("t4", False, "PREFER_SPOT")],
)
def test_workers_are_the_group_s_and_spot_where_asked(group: str, is_asked: bool, market: str) -> None:  # noqa: FBT001
    _, compute = _documents(group=group, is_spot=is_asked)
    [workers] = compute["worker_nodes"]
    [made] = [one for one in dev_stack().outputs.gpu_groups if one.name == group]
    assert (workers["instance_type"], workers["market_type"]) == (made.instance_type, market)
    assert (workers["min_nodes"], workers["max_nodes"]) == (0, 4)


def test_a_stack_without_a_head_type_is_refused() -> None:
    with pytest.raises(RefusedError, match="make up ENV=dev"):
        render_compute(_job(), dev_stack(head_instance_type=None))


def test_the_command_writes_a_folder_whose_settings_the_trainer_reads(tmp_path: Path) -> None:
    outputs, out = tmp_path / "outputs.json", tmp_path / "job"
    outputs.write_text(json.dumps(dev_outputs()))
    options = ["--env", "dev", "--outputs", str(outputs), "--team", "research", "--group", "a10g", "--cloud", "lab"]
    answer = ask("anyscale", *options, "--name", "first", "--num-workers", "4", "--use-gpu", "--out", str(out))
    assert answer.status == 0, answer.err
    job = yaml.safe_load((out / "job.yaml").read_text())
    assert job["compute_config"] == yaml.safe_load((out / "compute.yaml").read_text())
    settings = load_settings([str(out / "settings.yaml")], environment={})
    assert settings.run.name == job["name"] == "first"
    assert (settings.scale.workers, settings.scale.gpu, settings.scale.address) == (4, True, "auto")
    assert settings.checkpoint.remote == f"s3://{dev_stack().outputs.storage.checkpoint_bucket}/research"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--workers", "4-1"), "write 1-4"),
        (("--data-path", "photos", "--dataset", "image_folder"), "as the machines see it"),
        (("--group", "a1"), "a10g"),
    ],
)
def test_wrong_input_is_refused_and_nothing_is_written(tmp_path: Path, options: tuple[str, ...], named: str) -> None:
    outputs, out = tmp_path / "outputs.json", tmp_path / "job"
    outputs.write_text(json.dumps(dev_outputs()))
    stack = ["--env", "dev", "--outputs", str(outputs), "--team", "research", "--cloud", "lab"]
    answer = ask("anyscale", *stack, *options, "--out", str(out))
    assert answer.status == 2
    assert named in answer.err
    assert not out.exists()
