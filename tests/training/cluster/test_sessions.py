"""Sessions as they are rendered, and what is refused before a cluster is asked."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.spec.cluster_names import CODE_PATH, TRAINER_PATH
from platform_charts.jobs.placement import place_job
from platform_charts.jobs.price import usd_per_hour
from platform_charts.jobs.rayjob import render_job
from tests.platform_charts.jobs.targets import group_of, job, target_of, with_groups
from tests.training.cluster.team_cluster import target
from training.cluster.context import ClusterContext, team_named
from training.cluster.session_access import session_name
from training.cluster.sessions import cluster, cost_so_far, session_request
from training.errors import SettingsError
from training.options.sessions import ClusterCommandOptions


def context() -> ClusterContext:
    stack = target()
    return ClusterContext(env="dev", target=stack, team=team_named(stack.outputs, "research"))


def options(**changes: object) -> ClusterCommandOptions:
    """The command line `make cluster ENV=dev NAME=notes`."""
    return ClusterCommandOptions(**{"env": "dev", "run": "notes", **changes})  # type: ignore[arg-type]


def test_a_session_is_a_job_with_limits_and_a_price() -> None:
    request, price = session_request(
        options(gpus=4, group="a10g", idle="45m", hours=6), context(), name="session-notes"
    )
    assert (request.name, request.kind, request.workers, request.gpus_per_worker) == ("session-notes", "session", 4, 1)
    assert request.deadline_hours == 7
    assert price is not None
    assert price > 1
    assert request.command is not None
    assert shlex.join(request.command) == (
        f"python -m training session --gpus=4 --idle-minutes=45 --hours=6 --usd-per-hour={price:g}"
    )


def test_a_session_without_gpus_has_workers_on_the_system_nodes_and_no_price() -> None:
    image = f"{context().target.outputs.registries['trainer']}@sha256:{'d' * 64}"
    request, price = session_request(options(gpus=0, workers=2, cpus=3, image=image), context(), name="session-notes")
    assert (request.workers, request.gpus_per_worker, request.cpus_per_worker) == (2, 0, 3)
    assert request.image == image
    assert price is None


def test_a_stopped_session_tells_what_it_has_cost_since_its_admission() -> None:
    request, price = session_request(options(gpus=4, group="a10g"), context(), name="session-notes")
    assert request.command is not None
    found = {"spec": {"entrypoint": shlex.join(request.command)}, "status": {"startTime": "2026-11-22T08:00:00Z"}}
    assert price is not None
    now = datetime(2026, 11, 22, 10, 30, tzinfo=UTC)
    assert cost_so_far(found, now=now) == f"10.00 GPU-hours, about ${price * 2.5:,.2f}"
    assert cost_so_far({**found, "status": {}}, now=now) == "0.00 GPU-hours, about $0.00"


def test_wrong_limits_and_names_are_refused_by_name_and_value(tmp_path: Path) -> None:
    for changes, message in (
        ({"idle": "soon"}, "idle time 'soon'"),
        ({"gpus": -1}, "workers=-1"),
        ({"hours": 0.0}, "hours=0"),
    ):
        with pytest.raises(SettingsError, match=message):
            session_request(options(**changes), context(), name="session-notes")
    assert session_name("notes") == session_name("session-notes") == "session-notes"
    with pytest.raises(SettingsError, match="name='session-Notes'"):
        session_request(options(), context(), name=session_name("Notes"))
    with pytest.raises(SettingsError, match="--detach does not wait"):
        cluster(options(detach=True, code=tmp_path))


def test_the_pods_of_a_session_have_its_code_on_their_import_path_and_those_of_other_jobs_none() -> None:
    request, _ = session_request(options(), context(), name="session-notes")
    _, rendered = render_job(request, context().target)
    cluster = rendered["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        mount = {"name": "runs", "mountPath": CODE_PATH, "subPath": "session-notes/code"}
        assert mount in container["volumeMounts"]
        assert {"name": "PYTHONPATH", "value": f"{TRAINER_PATH}:{CODE_PATH}"} in container["env"]
    assert f"PYTHONPATH={TRAINER_PATH} " in Path("training/image/Dockerfile").read_text()
    _, other = render_job(job(workers=1, cpus_per_worker=1), context().target)
    assert CODE_PATH not in str(other)


def test_the_price_of_a_job_is_that_of_its_part_of_the_nodes_with_gpus_in_the_region_of_the_prices() -> None:
    stack = with_groups(group_of("g6.12xlarge"))
    node = stack.catalog.find_instance("g6.12xlarge").usd_per_hour
    assert node is not None
    elsewhere = replace(stack, outputs=stack.outputs.model_copy(update={"region": "eu-north-1"}))
    one, prod = job(workers=1, cpus_per_worker=1), target_of("prod")
    without_gpus = job(gpus_per_worker=0, workers=1, cpus_per_worker=1)
    for request, target_, price in (
        (one, stack, pytest.approx(node / 4)),
        (job(workers=8, cpus_per_worker=1), stack, pytest.approx(node * 2)),
        (without_gpus, prod, None),
        (one, elsewhere, None),
    ):
        assert usd_per_hour(place_job(request, target_), target_) == price
