"""Sessions as they are rendered, and what is refused before a cluster is asked."""

from __future__ import annotations

import shlex
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
    """The dev stack, as the team research."""
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
    request, price = session_request(options(gpus=0, workers=2, cpus=3), context(), name="session-notes")
    assert (request.workers, request.gpus_per_worker, request.cpus_per_worker) == (2, 0, 3)
    assert price is None


def test_a_session_runs_in_the_image_that_it_names() -> None:
    image = f"{context().target.outputs.registries['trainer']}@sha256:{'d' * 64}"
    request, _ = session_request(options(image=image), context(), name="session-notes")
    assert request.image == image


def test_a_stopped_session_tells_what_it_has_cost_since_its_admission() -> None:
    request, price = session_request(options(gpus=4, group="a10g"), context(), name="session-notes")
    assert request.command is not None
    found = {"spec": {"entrypoint": shlex.join(request.command)}, "status": {"startTime": "2026-11-22T08:00:00Z"}}
    assert price is not None
    now = datetime(2026, 11, 22, 10, 30, tzinfo=UTC)
    assert cost_so_far(found, now=now) == f"10.00 GPU-hours, about ${price * 2.5:,.2f}"
    assert cost_so_far({**found, "status": {}}, now=now) == "0.00 GPU-hours, about $0.00"


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"idle": "soon"}, "idle time 'soon'"), ({"gpus": -1}, "workers=-1"), ({"hours": 0.0}, "hours=0")],
)
def test_wrong_limits_are_refused_by_name_and_value(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        session_request(options(**changes), context(), name="session-notes")


def test_the_name_of_a_session_is_that_of_a_job() -> None:
    assert session_name("notes") == session_name("session-notes") == "session-notes"
    with pytest.raises(SettingsError, match="name='session-Notes'"):
        session_request(options(), context(), name=session_name("Notes"))


def test_the_pods_of_a_session_have_its_code_on_their_import_path() -> None:
    request, _ = session_request(options(), context(), name="session-notes")
    _, rendered = render_job(request, context().target)
    cluster = rendered["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        mount = {"name": "runs", "mountPath": CODE_PATH, "subPath": "session-notes/code"}
        assert mount in container["volumeMounts"]
        assert {"name": "PYTHONPATH", "value": f"{TRAINER_PATH}:{CODE_PATH}"} in container["env"]
    dockerfile = Path("training/image/Dockerfile").read_text()
    assert f"PYTHONPATH={TRAINER_PATH} " in dockerfile


def test_other_jobs_have_no_code_folder() -> None:
    _, rendered = render_job(job(workers=1, cpus_per_worker=1), context().target)
    assert CODE_PATH not in str(rendered)


def test_code_and_a_command_that_does_not_wait_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--detach does not wait"):
        cluster(options(detach=True, code=tmp_path))


def test_the_price_of_a_job_is_that_of_its_part_of_the_nodes() -> None:
    stack = with_groups(group_of("g6.12xlarge"))
    node = stack.catalog.find_instance("g6.12xlarge").usd_per_hour
    assert node is not None
    one, all_of_two = (
        usd_per_hour(place_job(job(workers=workers, cpus_per_worker=1), stack), stack) for workers in (1, 8)
    )
    assert one == pytest.approx(node / 4)
    assert all_of_two == pytest.approx(node * 2)


def test_nodes_without_gpus_and_other_regions_have_no_price() -> None:
    stack = target_of("prod")
    assert usd_per_hour(place_job(job(gpus_per_worker=0, workers=1, cpus_per_worker=1), stack), stack) is None
    priced = with_groups(group_of("g6.12xlarge"))
    elsewhere = type(priced)(
        outputs=priced.outputs.model_copy(update={"region": "eu-north-1"}),
        release=priced.release,
        catalog=priced.catalog,
    )
    assert usd_per_hour(place_job(job(workers=1, cpus_per_worker=1), elsewhere), elsewhere) is None
