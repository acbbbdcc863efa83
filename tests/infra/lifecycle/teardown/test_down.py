"""`make down` asks, empties the cluster, and destroys the stack; pulumi and the cluster's contents are doubles."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

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
VPCS = [{"urn": f"urn:pulumi:dev::p::aws:ec2/vpc:Vpc::{number}", "type": "aws:ec2/vpc:Vpc"} for number in range(3)]


@dataclass
class Down:
    """`make down`, and the cluster as far as it asks.

    Attributes:
        found: the cluster's jobs.
        deleted: the steps that were taken, each limited to the namespaces in `limits`.
        is_lost: whether the API server does not answer.
        left: the exit status of the audit.
        cleared: numbers of interfaces that are deleted, in turn.
    """

    stack: Stack
    ran: Callable[[], list[str]]
    patch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    found: list[Manifest]
    deleted: list[str] = field(default_factory=list)
    limits: list[Within] = field(default_factory=list)
    is_lost: bool = False
    left: int = 0
    cleared: list[int] = field(default_factory=lambda: [2] * 5)

    def __call__(self, *options: str, env: str = "dev", typed: str | None = None) -> int:
        """Run the command; `typed` is the answer to each question."""

        def answer(_question: str) -> str:
            if typed is None:
                raise EOFError
            return typed

        self.patch.setattr("builtins.input", answer)
        return main(["down", "--env", env, *options])

    def said(self) -> str:
        captured = self.capsys.readouterr()
        return captured.out + captured.err

    def audit(self, options: LeaksOptions) -> int:
        self.deleted.append(f"audit of {options.env}")
        return self.left

    def check_served(self, _api: object) -> None:
        if self.is_lost:
            raise ConnectionLostError("cannot list APIService: the API server does not answer")

    def repairs(self, *_: object, is_teardown: bool) -> tuple[()]:
        assert is_teardown
        self.deleted.append("releases")
        return ()

    def deleting(self, kind: str) -> Callable[..., None]:
        def delete(_api: object, *, say: object, within: Within) -> None:
            self.deleted.append(kind)
            self.limits.append(within)

        return delete


@pytest.fixture
def down(
    stack: Stack, ran: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Down:
    job = {"kind": "RayJob", "metadata": {"namespace": "research", "name": "digits"}}
    made = Down(stack, ran, monkeypatch, capsys, [job])
    monkeypatch.setattr("infra.lifecycle.access.running.StackCluster.api", lambda _cluster: object())
    monkeypatch.setattr(f"{HERE}.check_served", made.check_served)
    for name in ("check_unused", "uses_of_others"):
        monkeypatch.setattr(f"{HERE}.{name}", lambda _api: ())
    monkeypatch.setattr("infra.lifecycle.commands.recovery.find_repairs", made.repairs)
    monkeypatch.setattr(f"{HERE}.find_workloads", lambda _api, **_: list(made.found))
    monkeypatch.setattr(f"{HERE}.kept_namespaces", lambda _api: iter(("namespace research is being deleted: RayJobs",)))
    monkeypatch.setattr(f"{HERE}.leaks", made.audit)
    monkeypatch.setattr(f"{HERE}._clear", lambda _case: made.cleared.pop(0))
    for kind in ("exposed", "claims"):
        monkeypatch.setattr(f"{HERE}.find_{kind}", lambda _api, **_: [])
    for kind in ("workloads", "exposed", "claims"):
        monkeypatch.setattr(f"{HERE}.delete_{kind}", made.deleting(kind))
    return made


def test_the_cluster_is_emptied_in_order_before_the_stack(down: Down) -> None:
    down.stack()
    assert down("--yes") == 0
    assert down.deleted == ["workloads", "exposed", "claims", "releases", "audit of dev"]
    assert down.limits == [None, None, None]
    assert down.ran() == ["destroy"]
    down.left = 1
    assert main(["destroy", "--env", "dev", "--yes"]) == 1, "the old name, and something is left in the account"
    assert down.deleted[5:] == down.deleted[:5]
    assert down.ran() == ["destroy", "destroy"]


def test_of_an_existing_cluster_only_the_stacks_namespaces_are_emptied(down: Down) -> None:
    down.patch.setattr("infra.lifecycle.commands.case.load_environment", lambda _: settings_of("existing-cluster"))
    down.patch.setattr(f"{HERE}.own_namespaces", lambda _api: frozenset({"research"}))
    down.stack(resources=[KEY])
    assert down("--yes", env="existing-cluster") == 3
    said = down.said()
    assert "aws eks update-cluster-config" not in said
    assert "--db-instance-identifier rtp-existing-cluster-mlflow --no-deletion-protection" in said
    assert (down.deleted, down.ran()) == ([], [])
    down.stack()
    assert down("--yes", env="existing-cluster") == 0
    assert down.limits == 3 * [frozenset({"research"})]
    assert down.ran() == ["destroy"]


def test_a_protected_and_a_locked_stack_keep_their_jobs(down: Down) -> None:
    down.stack(resources=[KEY])
    assert down("--yes") == 3
    said = down.said()
    assert "has 1 protected resources: aws:kms/key:Key volumes" in said
    assert "pulumi state unprotect --all -s dev --yes\n" in said
    assert "aws eks update-cluster-config --name rtp-dev --no-deletion-protection\n" in said
    assert "--db-instance-identifier rtp-dev-mlflow --no-deletion-protection" in said
    down.stack(init="could not create stack: the stack is currently locked by 1 lock(s).\n  s3://…: created by me@here")
    assert down("--yes") == 3
    said = down.said()
    assert "changed: stack dev is locked by another pulumi, which runs or was killed: s3://…: created" in said
    assert "`pulumi cancel -s dev --yes`" in said
    assert (down.deleted, down.ran()) == ([], [])


@pytest.mark.parametrize(
    ("env", "options", "typed", "status"),
    [
        ("dev", "", "dev", 0),
        ("dev", "", "prod", 3),
        ("dev", "", None, 3),
        ("prod", "--yes", None, 3),
        ("prod", "--yes", "prod", 0),
        ("prod", "", "dev", 3),
        ("prod", "--confirm prod", None, 0),
        ("prod", "--confirm staging", None, 3),
    ],
)
def test_jobs_go_only_if_the_name_is_typed(env: str, options: str, typed: str | None, status: int, down: Down) -> None:
    down.stack()
    down.patch.setattr("infra.lifecycle.commands.case.check_account", lambda *_: None)
    assert down(*options.split(), env=env, typed=typed) == status
    assert bool(down.deleted) == (status == 0)
    assert down.ran() == (["destroy"] if status == 0 else [])
    said = down.said()
    if env == "dev":
        assert "RayJob research/digits" in said
    else:
        assert ("CONFIRM=prod" in said) == (status == 3)


def test_a_cluster_that_does_not_answer_keeps_its_stack_until_it_is_given_up(down: Down) -> None:
    down.stack(resources=[CHART])
    down.is_lost = True
    there = AccountState(endpoint="https://x", missing=())
    down.patch.setattr("infra.lifecycle.preflight.case.read_account", lambda *_: there)
    down.patch.setattr(f"{HERE}.connected", lambda _case: nullcontext())
    assert down("--yes") == 3
    said = down.said()
    assert "nothing was destroyed: cannot list APIService" in said
    assert "UNREACHABLE=1" in said
    assert down("--unreachable", typed="no") == 3
    assert down.ran() == []
    assert down("--yes", "--unreachable") == 0
    assert (down.deleted, down.ran()) == (["audit of dev"], ["state", "destroy"])


def test_a_cluster_that_is_gone_does_not_keep_its_stack(down: Down) -> None:
    down.stack(resources=[CHART])
    down.is_lost = True
    assert down("--yes") == 0
    said = down.said()
    assert "note: the cluster is not emptied first: cannot list APIService" in said
    assert (down.deleted, down.ran()) == (["audit of dev"], ["state", "destroy"])


def test_an_interrupted_destroy_is_run_again_and_an_interrupted_creation_explained(down: Down) -> None:
    group = {"clusterName": "rtp-dev", "nodeGroupName": "t4-1a2b3c4"}
    down.stack(operations=[pending("creating", GROUP, **group), pending("deleting", GROUP, **group)])
    assert down("--yes") == 3
    said = down.said()
    assert "creating aws:eks/nodeGroup:NodeGroup t4" in said
    assert "deleting" not in said
    assert (down.deleted, down.ran()) == ([], [])
    down.stack(operations=[pending("deleting", GROUP, **group)])
    assert down("--yes") == 0
    assert down.ran() == ["stack", "destroy"]


def test_who_uses_what_is_being_destroyed_is_said_once_and_before_pulumi_gives_up(down: Down) -> None:
    down.patch.setattr(f"{HERE}._NAMING_SECONDS", 0.05)
    uses = "ClusterQueue theirs uses ResourceFlavor t4"
    down.patch.setattr(f"{HERE}.uses_of_others", lambda _api: (uses,))
    down.stack(says="sleep 1; exit 0")
    assert down("--yes") == 0
    assert down.said().count(uses) == 1


def test_a_destroy_that_gets_further_is_tried_again(down: Down, tmp_path: Path) -> None:
    """As when AWS still counts the interfaces of deleted nodes as users of their security group."""
    tried, emptied = tmp_path / "tried", f"echo '{{\"deployment\": {{}}}}' > {tmp_path}/state.json"
    down.stack(resources=VPCS, says=f"test -f {tried} && exit 0; touch {tried}; {emptied}; exit 1")
    assert down("--yes") == 0
    again = "0 of 3 resources are left, and 2 others that blocked them are deleted; attempt 2 of 3:"
    assert f"namespace research is being deleted: RayJobs\n{again}\n" in down.said()
    assert down.ran() == ["destroy", "destroy"]


def test_a_destroy_that_changes_nothing_is_tried_again_only_after_what_blocked_it_is_deleted(down: Down) -> None:
    down.stack(resources=VPCS, says="exit 255")
    down.cleared = [0]  # as without permissions
    assert down("--yes") == 255
    assert (len(down.deleted), down.ran()) == (4, ["destroy"])
    down.cleared = [2, 0]  # as when the command is run again, and only what is blocked is left
    assert down("--yes") == 255
    assert down.ran() == ["destroy", "destroy", "destroy"]


@pytest.mark.parametrize("has_cluster", [True, False])
def test_an_empty_stack_too_is_destroyed_only_if_its_name_is_typed(down: Down, *, has_cluster: bool) -> None:
    """Without a terminal, Pulumi would end with a hint about an option that `make` does not have."""
    down.found, down.cleared = [], []
    if not has_cluster:
        down.patch.setattr("infra.lifecycle.access.running.StackCluster.api", lambda _: None)
    down.stack(resources=VPCS)
    for typed in (None, "yes"):
        assert down(typed=typed) == 3
    assert (down.deleted, down.ran()) == ([], [])
    assert down(typed="dev") == 0
    assert down.ran() == ["destroy"]
