"""`make down` asks, empties the cluster, and destroys the stack; pulumi and the cluster's contents are doubles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from infra.kube.errors import ConnectionLostError
from infra.lifecycle.cli import main
from infra.lifecycle.options import LeaksOptions
from infra.lifecycle.stack.stage import AccountState
from infra.lifecycle.teardown.namespaces import Within
from infra.spec.manifest import Manifest
from tests.infra.aws.graphs import settings_of
from tests.infra.lifecycle.conftest import Stack
from tests.infra.lifecycle.stack.test_state import GROUP, pending

HERE = "infra.lifecycle.commands.down"
KEY = {"urn": "urn:pulumi:dev::p::aws:kms/key:Key::volumes", "type": "aws:kms/key:Key", "protect": True}
CHART = {"urn": "urn:pulumi:dev::p::kubernetes:helm.sh/v3:Release::kueue", "type": "kubernetes:helm.sh/v3:Release"}
Ran = Callable[[], list[str]]


@dataclass
class Contents:
    """What a cluster has, as far as `down` asks.

    Attributes:
        found: its jobs.
        deleted: the steps that were taken.
        limits: the namespaces that each step was limited to.
        is_lost: whether the API server does not answer.
        left: the exit status of the audit.
    """

    found: list[Manifest]
    deleted: list[str] = field(default_factory=list)
    limits: list[Within] = field(default_factory=list)
    is_lost: bool = False
    left: int = 0

    def audit(self, options: LeaksOptions) -> int:
        """Note that the account was looked at."""
        self.deleted.append(f"audit of {options.env}")
        return self.left

    def check_served(self, _api: object) -> None:
        """Answer, or not."""
        if self.is_lost:
            raise ConnectionLostError("cannot list APIService: the API server does not answer")

    def deleting(self, kind: str) -> Callable[..., None]:
        """The step that deletes this kind of contents."""

        def delete(_api: object, *, say: object, within: Within) -> None:
            self.deleted.append(kind)
            self.limits.append(within)

        return delete


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> Contents:
    """A cluster with a job."""
    made = Contents([{"kind": "RayJob", "metadata": {"namespace": "research", "name": "digits"}}])
    monkeypatch.setattr("infra.lifecycle.access.running.StackCluster.api", lambda _cluster: object())
    monkeypatch.setattr(f"{HERE}.check_served", made.check_served)
    monkeypatch.setattr(f"{HERE}.find_workloads", lambda _api, *, within: list(made.found))  # noqa: ARG005
    monkeypatch.setattr(f"{HERE}.kept_namespaces", lambda _api: iter(("namespace research is being deleted: RayJobs",)))
    monkeypatch.setattr(f"{HERE}.leaks", made.audit)
    monkeypatch.setattr(f"{HERE}._clear", lambda _case: 2)
    for kind in ("exposed", "claims"):
        monkeypatch.setattr(f"{HERE}.find_{kind}", lambda _api, *, within: [])  # noqa: ARG005
    for kind in ("workloads", "exposed", "claims"):
        monkeypatch.setattr(f"{HERE}.delete_{kind}", made.deleting(kind))
    return made


def test_the_cluster_is_emptied_in_order_before_the_stack(stack: Stack, ran: Ran, contents: Contents) -> None:
    stack()
    assert main(["down", "--env", "dev", "--yes"]) == 0
    assert contents.deleted == ["workloads", "exposed", "claims", "audit of dev"]
    assert contents.limits == [None, None, None]
    assert ran() == ["destroy"]


def test_of_an_existing_cluster_only_the_stacks_namespaces_are_emptied(
    stack: Stack, ran: Ran, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.lifecycle.commands.case.load_environment", lambda _: settings_of("existing-cluster"))
    monkeypatch.setattr(f"{HERE}.own_namespaces", lambda _api: frozenset({"research"}))
    stack()
    assert main(["down", "--env", "existing-cluster", "--yes"]) == 0
    assert contents.limits == 3 * [frozenset({"research"})]
    assert ran() == ["destroy"]


def test_the_protection_of_an_existing_cluster_is_its_owners(
    stack: Stack, contents: Contents, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("infra.lifecycle.commands.case.load_environment", lambda _: settings_of("existing-cluster"))
    stack(resources=[KEY])
    assert main(["down", "--env", "existing-cluster", "--yes"]) == 3
    said = capsys.readouterr().err
    assert "aws eks update-cluster-config" not in said
    assert "--db-instance-identifier rtp-existing-cluster-mlflow --no-deletion-protection" in said
    assert contents.deleted == []


def test_the_old_name_of_the_command_does_the_same(stack: Stack, ran: Ran, contents: Contents) -> None:
    stack()
    assert main(["destroy", "--env", "dev", "--yes"]) == 0
    assert (len(contents.deleted), ran()) == (4, ["destroy"])


def test_what_is_left_in_the_account_fails_the_command(stack: Stack, ran: Ran, contents: Contents) -> None:
    stack()
    contents.left = 1
    assert main(["down", "--env", "dev", "--yes"]) == 1
    assert ran() == ["destroy"]


def test_a_protected_stack_keeps_its_jobs(
    stack: Stack, ran: Ran, contents: Contents, capsys: pytest.CaptureFixture[str]
) -> None:
    stack(resources=[KEY])
    assert main(["down", "--env", "dev", "--yes"]) == 3
    said = capsys.readouterr().err
    assert "has 1 protected resources: aws:kms/key:Key volumes" in said
    assert "pulumi state unprotect --all -s dev\n" in said
    assert "aws eks update-cluster-config --name rtp-dev --no-deletion-protection\n" in said
    assert "--db-instance-identifier rtp-dev-mlflow --no-deletion-protection" in said
    assert (contents.deleted, ran()) == ([], [])


def test_a_locked_stack_keeps_its_jobs(
    stack: Stack, ran: Ran, contents: Contents, capsys: pytest.CaptureFixture[str]
) -> None:
    stack(init="could not create stack: the stack is currently locked by 1 lock(s).\n  s3://…: created by me@laptop")
    assert main(["down", "--env", "dev", "--yes"]) == 3
    said = capsys.readouterr().err
    assert (
        "nothing was deleted: stack dev is locked by another pulumi, which runs or was killed: s3://…: created" in said
    )
    assert "`pulumi cancel -s dev`" in said
    assert (contents.deleted, ran()) == ([], [])


@pytest.mark.parametrize(("typed", "status"), [("dev", 0), ("prod", 3), (None, 3)])
def test_jobs_are_deleted_only_after_the_environments_name_is_typed(
    typed: str | None,
    status: int,
    stack: Stack,
    ran: Ran,
    contents: Contents,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stack()
    monkeypatch.setattr("builtins.input", _typing(typed))
    assert main(["down", "--env", "dev"]) == status
    assert bool(contents.deleted) == (status == 0)
    assert ran() == (["destroy"] if status == 0 else [])
    assert "RayJob research/digits" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "typed", "status"),
    [
        (("--yes",), None, 3),
        (("--yes",), "prod", 0),
        ((), "dev", 3),
        (("--confirm", "prod"), None, 0),
        (("--confirm", "staging"), None, 3),
    ],
)
def test_production_goes_only_after_its_name(
    options: tuple[str, ...],
    typed: str | None,
    status: int,
    stack: Stack,
    ran: Ran,
    contents: Contents,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stack()
    monkeypatch.setattr("infra.lifecycle.commands.case.check_account", lambda *_: None)
    monkeypatch.setattr("builtins.input", _typing(typed))
    assert main(["down", "--env", "prod", *options]) == status
    assert bool(contents.deleted) == (status == 0)
    assert ran() == (["destroy"] if status == 0 else [])
    assert ("CONFIRM=prod" in capsys.readouterr().err) == (status == 3)


def test_a_cluster_that_does_not_answer_keeps_its_stack_until_it_is_given_up(
    stack: Stack, ran: Ran, contents: Contents, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stack(resources=[CHART])
    contents.is_lost = True
    monkeypatch.setattr(
        "infra.lifecycle.preflight.case.read_account", lambda *_: AccountState(endpoint="https://x", missing=())
    )
    monkeypatch.setattr(f"{HERE}.connected", _connected)
    assert main(["down", "--env", "dev", "--yes"]) == 3
    said = capsys.readouterr().err
    assert "nothing was destroyed: cannot list APIService" in said
    assert "UNREACHABLE=1" in said
    assert ran() == []
    monkeypatch.setattr("builtins.input", _typing("no"))
    assert main(["down", "--env", "dev", "--unreachable"]) == 3
    assert ran() == []
    assert main(["down", "--env", "dev", "--yes", "--unreachable"]) == 0
    assert (contents.deleted, ran()) == (["audit of dev"], ["state", "destroy"])


def test_a_cluster_that_is_gone_does_not_keep_its_stack(
    stack: Stack, ran: Ran, contents: Contents, capsys: pytest.CaptureFixture[str]
) -> None:
    stack(resources=[CHART])
    contents.is_lost = True
    assert main(["down", "--env", "dev", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "note: the cluster is not emptied first: cannot list APIService" in said
    assert "taking 1 resource on the cluster out of the stack's state" in said
    assert (contents.deleted, ran()) == (["audit of dev"], ["state", "destroy"])


def test_an_interrupted_destroy_is_run_again_and_an_interrupted_creation_explained(
    stack: Stack, ran: Ran, contents: Contents, capsys: pytest.CaptureFixture[str]
) -> None:
    group = {"clusterName": "rtp-dev", "nodeGroupName": "t4-1a2b3c4"}
    stack(operations=[pending("creating", GROUP, **group), pending("deleting", GROUP, **group)])
    assert main(["down", "--env", "dev", "--yes"]) == 3
    said = capsys.readouterr().err
    assert "creating aws:eks/nodeGroup:NodeGroup t4" in said
    assert "deleting" not in said
    assert (contents.deleted, ran()) == ([], [])
    stack(operations=[pending("deleting", GROUP, **group)])
    assert main(["down", "--env", "dev", "--yes"]) == 0
    assert ran() == ["destroy"]


def test_a_destroy_that_gets_further_is_tried_again(
    stack: Stack,
    ran: Ran,
    contents: Contents,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As when AWS still counts the interfaces of deleted nodes as users of their security group."""
    assert contents.found
    state = tmp_path / "state.json"
    emptied = '{"deployment": {}}'
    stack(
        resources=_resources(3),
        says=f"test -f {tmp_path}/tried && exit 0; touch {tmp_path}/tried; echo '{emptied}' > {state}; exit 1",
    )
    assert main(["down", "--env", "dev", "--yes"]) == 0
    said = capsys.readouterr().out
    again = "0 of 3 resources are left, and 2 others that blocked them are deleted; attempt 2 of 3:"
    assert f"namespace research is being deleted: RayJobs\n{again}\n" in said
    assert ran() == ["destroy", "destroy"]


def test_a_destroy_that_changes_nothing_is_not_tried_again(
    stack: Stack, ran: Ran, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without permissions."""
    monkeypatch.setattr(f"{HERE}._clear", lambda _case: 0)
    stack(resources=_resources(3), says="exit 255")
    assert main(["down", "--env", "dev", "--yes"]) == 255
    assert (len(contents.deleted), ran()) == (3, ["destroy"])


def test_a_destroy_that_an_interface_blocks_is_tried_again_once_it_is_deleted(
    stack: Stack, ran: Ran, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the command is run again, and only what is blocked is left."""
    assert contents.found
    cleared = iter((2, 0))
    monkeypatch.setattr(f"{HERE}._clear", lambda _case: next(cleared))
    stack(resources=_resources(3), says="exit 255")
    assert main(["down", "--env", "dev", "--yes"]) == 255
    assert ran() == ["destroy", "destroy"]


def test_a_refused_question_deletes_nothing(
    stack: Stack, ran: Ran, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents.found = []
    monkeypatch.setattr(f"{HERE}._clear", lambda _case: pytest.fail("interfaces were deleted"))
    stack(resources=_resources(3), says="exit 255")
    assert main(["down", "--env", "dev"]) == 255
    assert ran() == ["destroy"]


def _resources(count: int) -> list[dict[str, Any]]:
    return [
        {"urn": f"urn:pulumi:dev::p::aws:ec2/vpc:Vpc::{number}", "type": "aws:ec2/vpc:Vpc"} for number in range(count)
    ]


def _typing(text: str | None) -> Callable[[str], str]:
    def typed(_question: str) -> str:
        if text is None:
            raise EOFError
        return text

    return typed


@contextmanager
def _connected(_case: object) -> Iterator[None]:
    yield
