"""Schedules with the real CronJob controller, Kueue and KubeRay.

Fake nodes run no containers: the tests run the program of the submitting pod, with the rights of its service account.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import CoreV1Api

from infra.kube.errors import ApiError
from infra.spec.cluster_names import SCHEDULER_ACCOUNT
from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.code import PART_BYTES
from tests.engines.kubernetes_operators import Operated
from tests.processes import run_command
from tests.training.cli.command import Answer, ask_here, assert_refused
from tests.training.cluster.code_of_jobs import NETS, deliver, mount_parts, project
from tests.training.cluster.commands import options_on
from tests.training.cluster.team_cluster import outputs_file
from tests.waiting import wait_until
from training.cluster import control

_SECONDS = 60
TEAM = "research"
NIGHTLY = ("--schedule", "* * * * *", "--name", "nightly")


pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def scheduled(queued: Operated, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operated]:
    """`queued`; deletes all CronJobs afterwards."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    yield queued
    queued.cluster.delete_all(queued.cluster.items("batch/v1", "CronJob"), seconds=_SECONDS)


def ask(scheduled: Operated, folder: Path, command: str, *arguments: str) -> Answer:
    return ask_here(command, *arguments, *options_on(scheduled, folder))


def jobs(scheduled: Operated) -> list[Manifest]:
    found = scheduled.cluster.items("ray.io/v1", "RayJob", namespace=TEAM, labels="ray-train-platform/schedule")
    return sorted(found, key=lambda one: str(one["metadata"]["name"]))


def cron_job(scheduled: Operated) -> Manifest:
    (found,) = scheduled.cluster.items("batch/v1", "CronJob", namespace=TEAM)
    return found


def due(scheduled: Operated) -> Manifest:
    """Have the controller start an occurrence: its last one was a day ago. Returns the running pod of the Job."""
    before = {one["metadata"]["uid"] for one in pods(scheduled)}
    last = datetime.now(UTC) - timedelta(days=1)
    scheduled.cluster.update_status(cron_job(scheduled), {"lastScheduleTime": f"{last:%Y-%m-%dT%H:%M:%SZ}"})
    wait_until(lambda: {one["metadata"]["uid"] for one in pods(scheduled)} > before, seconds=_SECONDS)
    (found,) = [one for one in pods(scheduled) if one["metadata"]["uid"] not in before]
    return found


def last_of(scheduled: Operated) -> datetime:
    return datetime.fromisoformat(cron_job(scheduled)["status"]["lastScheduleTime"])


def pods(scheduled: Operated) -> list[Manifest]:
    found = scheduled.cluster.items("v1", "Pod", namespace=TEAM, labels="ray-train-platform/schedule")
    return [one for one in found if one["status"].get("phase") == "Running" and "ray-train-platform/job" not in
            one["metadata"]["labels"]]  # fmt: skip


def submit(scheduled: Operated, pod: Manifest, folder: Path, *, job: str | None = None) -> str:
    """Run the pod's program with the rights of its service account; returns what it prints."""
    (container,) = pod["spec"]["containers"]
    (template,) = [one for one in pod["spec"]["volumes"] if "configMap" in one]
    mounted = api_object("v1", "ConfigMap", template["configMap"]["name"], namespace=TEAM)
    found = scheduled.cluster.existing(mounted)
    (folder / "objects.json").write_text(found["data"]["objects.json"])
    has_code = any("projected" in one and one["name"] == "code" for one in pod["spec"]["volumes"])
    if has_code and not (folder / "parts").exists():
        mount_parts(scheduled.cluster, pod, folder / "parts", volume="code")
    assert pod["spec"]["serviceAccountName"] == SCHEDULER_ACCOUNT
    kubeconfig = folder / "scheduler.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(as_scheduler(scheduled)))
    named = job or pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
    mounts = {"$(JOB_NAME)": named, "/etc/schedule-code": str(folder / "parts"), "/etc/schedule": str(folder)}
    arguments = container["args"]
    for before, after in mounts.items():
        arguments = [one.replace(before, after) for one in arguments]
    program, *words = container["command"]
    assert program == "python"
    images = Path(__file__).parents[3] / "platform_charts" / "images"
    answer = run_command([sys.executable, *words, *arguments, f"--kubeconfig={kubeconfig}"], cwd=images, seconds=60)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def as_scheduler(scheduled: Operated) -> dict[str, Any]:
    """A kubeconfig with a token of the service account."""
    config: dict[str, Any] = yaml.safe_load(scheduled.plane.kubeconfig.read_text())
    answer = CoreV1Api(scheduled.cluster.client).create_namespaced_service_account_token(
        SCHEDULER_ACCOUNT, TEAM, {"spec": {"expirationSeconds": 3600}}
    )
    config["users"][0]["user"] = {"token": answer.status.token}
    return config


def owners_of_code(scheduled: Operated, job: Manifest) -> list[set[str]]:
    """The owners of each ConfigMap with a job's code."""
    found = [one["metadata"] for one in scheduled.cluster.items("v1", "ConfigMap", namespace=TEAM)]
    mine = [one for one in found if one["name"].startswith(f"{job['metadata']['name']}-code-")]
    return [{owner["uid"] for owner in one["ownerReferences"]} for one in mine]


def put(scheduled: Operated, folder: Path, *arguments: str) -> None:
    assert ask(scheduled, folder, "train", *NIGHTLY, *arguments).status == 0


def test_a_schedule_submits_a_new_run_with_its_code_and_is_listed(scheduled: Operated, tmp_path: Path) -> None:
    code = project(tmp_path / "project", noise_bytes=PART_BYTES)
    said = ask(scheduled, tmp_path, "train", *NIGHTLY, "--code", str(code)).out
    assert "each job and run is nightly-YYYYMMDD-HHMM (UTC), and goes through queue research" in said
    (code / "nets.py").write_text("edited = True\n")
    pod = due(scheduled)
    last = last_of(scheduled)
    printed = submit(scheduled, pod, tmp_path)
    (job,) = jobs(scheduled)
    name = job["metadata"]["name"]
    assert name == f"nightly-{last:%Y%m%d-%H%M}"
    assert printed == f"{name} submitted\n"
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[words.index("--name") + 1] == name
    settings = scheduled.cluster.existing(api_object("v1", "ConfigMap", f"{name}-settings", namespace=TEAM))
    assert yaml.safe_load(settings["data"]["settings.yaml"])["run"]["name"] == name
    assert settings["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    scheduled.await_state(job, lambda state: state.stage == "starting", what="admitted")
    again = f"{name} is not submitted: it exists, or an earlier occurrence has not ended\n"
    assert submit(scheduled, pod, tmp_path) == again
    scheduled.dashboards.say(name, "RUNNING")
    scheduled.await_state(job, lambda state: state.stage == "running", what="running")

    (head,) = scheduled.pods(job, labels="ray.io/node-type=head")
    assert ask(scheduled, tmp_path, "unschedule", "nightly", "--pause").status == 0
    _, row = ask(scheduled, tmp_path, "schedules").out.splitlines()
    assert "Etc/UTC" in row
    assert " paused " in row
    scheduled.end(job, "SUCCEEDED")
    scheduled.await_state(job, lambda state: state.stage == "done", what="done")
    put(scheduled, tmp_path, "--time-zone", "Europe/Berlin")
    assert [cron_job(scheduled)["spec"][key] for key in ("suspend", "timeZone")] == [False, "Europe/Berlin"]
    before = last_of(scheduled)
    _, row = ask(scheduled, tmp_path, "schedules").out.splitlines()
    assert row.split()[:8] == ["nightly", TEAM, "*", "*", "*", "*", "*", "Europe/Berlin"]
    assert any(f"{one:%Y-%m-%d %H:%M} UTC" in row for one in (before, last_of(scheduled)))
    assert name in row
    assert row.endswith("done")

    assert ask(scheduled, tmp_path, "unschedule", "nightly").status == 0
    template = api_object("v1", "ConfigMap", "nightly-schedule", namespace=TEAM)
    wait_until(lambda: scheduled.cluster.read(template) is None, seconds=_SECONDS)
    mount_parts(scheduled.cluster, head, tmp_path / "pod" / "parts")
    answer = deliver(head, tmp_path / "pod")
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "pod" / "delivered" / "files" / "nets.py").read_text() == NETS
    assert owners_of_code(scheduled, job) == [{job["metadata"]["uid"]}] * 2
    gone = ask(scheduled, tmp_path, "unschedule", "nightly")
    assert (gone.status, "no such schedule" in gone.err) == (2, True)


def test_replaced_code_is_kept_while_a_job_may_be_submitted_with_it(scheduled: Operated, tmp_path: Path) -> None:
    code = project(tmp_path / "project")
    put(scheduled, tmp_path, "--code", str(code))
    (first,) = of_schedule(scheduled)
    pod = due(scheduled)
    (code / "nets.py").write_text(f"{NETS}\nCHANGED = 1\n")
    put(scheduled, tmp_path, "--code", str(code))
    assert len(of_schedule(scheduled)) == 2
    submit(scheduled, pod, tmp_path)

    began = active(scheduled)  # besides the pod's Job, perhaps that of a minute that has passed meanwhile
    for name in began:
        scheduled.cluster.delete(api_object("batch/v1", "Job", name, namespace=TEAM))
    wait_until(lambda: not began & active(scheduled), seconds=_SECONDS)
    put(scheduled, tmp_path, "--code", str(code))
    (second,) = of_schedule(scheduled)
    assert second != first
    (job,) = jobs(scheduled)
    assert len(owners_of_code(scheduled, job)) == 1


def of_schedule(scheduled: Operated) -> list[str]:
    """Names of the ConfigMaps with the schedule's own code."""
    owner = cron_job(scheduled)["metadata"]["uid"]
    found = [one["metadata"] for one in scheduled.cluster.items("v1", "ConfigMap", namespace=TEAM)]
    owned = [one["name"] for one in found if owner in {by["uid"] for by in one.get("ownerReferences", ())}]
    return [name for name in owned if name != "nightly-schedule"]


def active(scheduled: Operated) -> set[str]:
    """Names of the schedule's Jobs that have not ended."""
    return {one["name"] for one in cron_job(scheduled)["status"].get("active", ())}


def test_an_occurrence_may_replace_an_earlier_job_that_runs(scheduled: Operated, tmp_path: Path) -> None:
    put(scheduled, tmp_path, "--concurrency", "replace")
    pod = due(scheduled)
    submit(scheduled, pod, tmp_path, job="nightly-29000000")
    (first,) = jobs(scheduled)
    scheduled.await_state(first, lambda state: state.stage == "starting", what="admitted")
    submit(scheduled, pod, tmp_path)
    assert len(jobs(scheduled)) == 2
    scheduled.await_state(first, lambda state: state.stage == "stopped", what="stopped")


def test_a_stopped_job_does_not_hold_up_the_schedule_and_the_history_is_limited(
    scheduled: Operated, tmp_path: Path
) -> None:
    put(scheduled, tmp_path, "--history", "1")
    pod = due(scheduled)
    for number in range(2):
        submit(scheduled, pod, tmp_path, job=f"nightly-{29000000 + number}")
        job = jobs(scheduled)[-1]
        scheduled.dashboards.say(job["metadata"]["name"], "RUNNING")
        scheduled.await_state(job, lambda state: state.stage == "running", what="running")
        scheduled.end(job, "SUCCEEDED")
        scheduled.await_state(job, lambda state: state.stage == "done", what="done")
    submit(scheduled, pod, tmp_path, job="nightly-29000002")
    kept = ["nightly-20250219-2121", "nightly-20250219-2122"]  # and not the first
    wait_until(lambda: [one["metadata"]["name"] for one in jobs(scheduled)] == kept, seconds=_SECONDS)
    control.stop(scheduled.api(TEAM), jobs(scheduled)[-1])
    assert submit(scheduled, pod, tmp_path, job="nightly-29000003") == "nightly-20250219-2123 submitted\n"


def test_members_schedule_in_their_namespace_and_through_the_queue_only(scheduled: Operated, tmp_path: Path) -> None:
    put(scheduled, tmp_path)
    manifest = cron_job(scheduled)
    del manifest["metadata"]["managedFields"], manifest["metadata"]["resourceVersion"], manifest["metadata"]["uid"]
    scheduled.environment.member(TEAM).apply(manifest, is_dry_run=True)
    with pytest.raises(ApiError, match="cannot patch resource"):
        scheduled.environment.member("platform").apply(manifest, is_dry_run=True)
    # A Job without a queue never starts: otherwise a member's CronJob would be a way around the queue.
    job = api_object("batch/v1", "Job", "around", namespace=TEAM, spec=manifest["spec"]["jobTemplate"]["spec"])
    with scheduled.cluster.applied(job):
        assert scheduled.cluster.existing(job)["spec"]["suspend"] is True


def test_an_invalid_schedule_is_refused_before_connecting(tmp_path: Path) -> None:
    where = ["--env", "dev", "--team", TEAM, "--outputs", str(outputs_file(tmp_path))]
    assert_refused(2, "'61' is not a minute", "train", *where, "--schedule", "61 * * * *")
    daily = ["train", *where, "--schedule", "@daily"]
    assert_refused(2, "its jobs are named NAME-YYYYMMDD-HHMM", *daily, "--name", "n" * 40)
    assert_refused(2, "history=0 must be between 1 and 100", *daily, "--history", "0")
