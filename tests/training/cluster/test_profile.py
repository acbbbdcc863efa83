"""How a job is asked for a profile, and what is refused. `tests.training.profiling.test_requests` has the run's side."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Literal

import pytest

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError
from infra.spec.cluster_names import PROFILE_REQUEST
from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.rayjob import KIND_LABEL
from platform_charts.jobs.scheduling import JOB_LABEL
from tests.training.cluster.team_cluster import TEAM, objects, target
from training.cluster.context import ClusterContext, team_named
from training.cluster.profile import ask
from training.errors import ExitStatus
from training.profiling.request import ProfileRequest

NAME = "first"
REQUEST = ProfileRequest(steps=3, id="4f1c2a9b")
RUNNING = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
DONE = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
REQUESTS = api_object("v1", "ConfigMap", f"{NAME}-requests", namespace=TEAM)


@cache
def context() -> ClusterContext:
    """The stack of dev, and its team research."""
    stack = target()
    return ClusterContext(env="dev", target=stack, team=team_named(stack.outputs, TEAM))


class Objects(KubernetesApi):
    """A double: objects in memory with a job and its submitter's pod, whose log is given; ConfigMaps that were made are kept."""

    def __init__(
        self, *, status: Mapping[str, str] = RUNNING, log: tuple[str, ...] = (), is_member: bool = True
    ) -> None:
        self.objects: dict[tuple[str, str], Manifest] = {}
        self.made: list[Manifest] = []
        self.lines = log
        self.is_member = is_member
        self.job = self.create(objects(NAME)[-1])
        self.job["status"] = dict(status)
        self.create(api_object("v1", "Pod", "submitter", namespace=TEAM, labels=_submitter_labels()))

    def read(self, manifest: Mapping[str, Any]) -> Manifest | None:
        return copy.deepcopy(self.objects.get(_key(manifest)))

    def items(self, api_version: str, kind: str, *, namespace: str | None = None, labels: str = "") -> list[Manifest]:
        del api_version, namespace
        wanted = dict(one.split("=") for one in labels.split(",") if one).items()
        return [
            found
            for (its, _), found in self.objects.items()
            if its == kind and wanted <= found["metadata"].get("labels", {}).items()
        ]

    def create(self, manifest: Mapping[str, Any], *, is_dry_run: bool = False) -> Manifest:
        del is_dry_run
        if manifest["kind"] == "SelfSubjectAccessReview":
            return {"status": {"allowed": self.is_member}}
        if _key(manifest) in self.objects:
            raise ApiError("already exists", code=409)
        made = copy.deepcopy(dict(manifest))
        made["metadata"] |= {"uid": f"uid-{len(self.objects)}", "creationTimestamp": "2026-11-23T18:00:00Z"}
        self.objects[_key(manifest)] = made
        self.made += [made] if made["kind"] == "ConfigMap" else []
        return made

    def delete(
        self, manifest: Mapping[str, Any], *, propagation: Literal["Background", "Foreground"] = "Background"
    ) -> None:
        del propagation
        self.objects.pop(_key(manifest), None)

    def log(self, pod: str, **_: object) -> Iterator[str]:
        del pod
        yield from (f"2026-11-23T18:00:{second:02d}.000000000Z {line}" for second, line in enumerate(self.lines))
        self.job["status"] = DONE


def _key(manifest: Mapping[str, Any]) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _submitter_labels() -> dict[str, str]:
    return {JOB_LABEL: NAME, "batch.kubernetes.io/job-name": NAME}


ANSWERED = (
    "step 1/9  loss 1.0",
    "profile 4f1c2a9b recording: steps 3 to 5 of 2 ranks",
    "profile deadbeef refused: another request",
    "profile 4f1c2a9b | steps 3 to 5: data-bound: half of a step",
    "step 2/9  loss 0.9",
    "profile 4f1c2a9b |   try first: more loaders",
    "profile 4f1c2a9b done: /mnt/runs/first/profile/step-00000003",
)


def test_the_request_belongs_to_the_job_and_goes_when_its_answer_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    api = Objects(log=ANSWERED)
    assert ask(api, context(), NAME, REQUEST) is ExitStatus.DONE
    (made,) = api.made
    assert made["metadata"]["ownerReferences"][0]["uid"] == api.job["metadata"]["uid"]
    assert ProfileRequest.parse(made["data"][PROFILE_REQUEST].encode()) == REQUEST
    assert api.read(REQUESTS) is None
    said = capsys.readouterr().out
    assert "steps 3 to 5: data-bound: half of a step\n  try first: more loaders\n" in said
    assert "kubectl -n research cp POD:/mnt/runs/first/profile/step-00000003 FOLDER" in said
    assert "another request" not in said
    assert "loss" not in said


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (("profile 4f1c2a9b refused: no steps left",), "refuses the request: no steps left"),
        (ANSWERED[:4], "is done: it ended before 3 of its steps were profiled"),
    ],
)
def test_without_a_verdict_the_request_is_withdrawn_too(log: tuple[str, ...], said: str) -> None:
    api = Objects(log=log)
    with pytest.raises(RefusedError, match=said):
        ask(api, context(), NAME, REQUEST)
    assert len(api.made) == 1
    assert api.read(REQUESTS) is None


def pending(api: Objects) -> None:
    api.create(
        {**REQUESTS, "metadata": {**REQUESTS["metadata"], "ownerReferences": [{"uid": api.job["metadata"]["uid"]}]}}
    )


def of_an_earlier_job(api: Objects) -> None:
    api.create({**REQUESTS, "metadata": {**REQUESTS["metadata"], "ownerReferences": [{"uid": "earlier"}]}})


def test_what_is_left_of_an_earlier_job_of_the_name_is_replaced() -> None:
    api = Objects(log=ANSWERED)
    of_an_earlier_job(api)
    assert ask(api, context(), NAME, REQUEST) is ExitStatus.DONE
    assert [PROFILE_REQUEST in one.get("data", {}) for one in api.made] == [False, True]


def test_a_second_request_is_refused_and_the_first_one_stays() -> None:
    api = Objects()
    pending(api)
    with pytest.raises(RefusedError, match="job first has a request for a profile already") as refused:
        ask(api, context(), NAME, REQUEST)
    assert "kubectl -n research delete configmap first-requests" in refused.value.remedy
    assert api.read(REQUESTS) is not None


def as_search(api: Objects) -> None:
    api.job["metadata"]["labels"][KIND_LABEL] = "search"


def as_command(api: Objects) -> None:
    api.job["spec"]["entrypoint"] = "python -m training run-on-nodes --cmd=true"


def of_an_earlier_release(api: Objects) -> None:
    api.job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["volumes"] = []


def starting(api: Objects) -> None:
    api.job["status"] = {"jobDeploymentStatus": "Initializing"}


def ended(api: Objects) -> None:
    api.job["status"] = DONE


def of_a_stranger(api: Objects) -> None:
    api.is_member = False


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (as_search, SettingsError, "job first is a search, and a profile is of one run"),
        (as_command, SettingsError, "runs a command of its own, which has no trainer to profile"),
        (of_an_earlier_release, SettingsError, "mounts no requests: an earlier release submitted it"),
        (starting, RefusedError, "job first is starting: only a job that runs sees a request"),
        (ended, RefusedError, "job first is done, so there is no step to profile"),
        (of_a_stranger, RefusedError, "create configmaps in namespace research, which the role submitter"),
    ],
)
def test_a_job_that_cannot_meet_a_request_is_refused_with_the_reason(
    change: Callable[[Objects], None], kind: type[PlatformError], said: str
) -> None:
    api = Objects()
    change(api)
    with pytest.raises(kind, match=said):
        ask(api, context(), NAME, REQUEST)
    assert api.made == []


def test_a_memory_snapshot_of_a_job_on_cpus_is_refused() -> None:
    with pytest.raises(SettingsError, match="job first runs on CPUs, and a memory snapshot is of a GPU"):
        ask(Objects(), context(), NAME, ProfileRequest(steps=3, memory=True))


def test_an_unknown_job_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match="job frist: no such job") as refused:
        ask(Objects(), context(), "frist", REQUEST)
    assert refused.value.remedy == "did you mean first?"
