"""The options of the stack's commands, one dataclass each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from infra.spec.command_line import argument, option
from infra.spec.settings import environment_names

_ENVIRONMENT: Final = f"environment: {', '.join(environment_names())}"


@dataclass(frozen=True, kw_only=True)
class EnvironmentOptions:
    """The environment."""

    env: str = option(_ENVIRONMENT, ...)


@dataclass(frozen=True, kw_only=True)
class GraphOptions(EnvironmentOptions):
    """Options of `graph`."""

    json: Path | None = option("write every resource as JSON", metavar="FILE")
    picture: Path | None = option("draw AWS and what runs on the cluster as .svg, .png or .pdf", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class OutputsOptions(EnvironmentOptions):
    """Options of `outputs`."""

    file: Path | None = option("output of `pulumi stack output --json`; default: run pulumi")
    recorded: bool = option(
        "write to --file what the program would export, without a stack or an account", default=False
    )


@dataclass(frozen=True, kw_only=True)
class ReleaseCheckOptions:
    """Options of `release-check`."""

    env: str | None = option("also apply this environment's rules, e.g. prod refuses unresolved entries")


@dataclass(frozen=True, kw_only=True)
class StalenessOptions:
    """Options of `staleness`."""

    days: int = option("days after which an entry is stale (default 90)", 90, at_least=0)


@dataclass(frozen=True, kw_only=True)
class PricesOptions:
    """Options of `prices`."""

    dry_run: bool = option("print the changes without writing them", default=False)


@dataclass(frozen=True, kw_only=True)
class ReleaseLockOptions(PricesOptions):
    """Options of `release-lock`."""

    upgrade: bool = option("write the newer versions that the rules of the release allow", default=False)
    region: str = option("region in which AMIs and add-ons are looked up (default us-east-1)", "us-east-1")


@dataclass(frozen=True, kw_only=True)
class TestEnvironmentOptions:
    """Options of `test-environment`."""

    __test__ = False  # not a class of tests, in spite of its name

    name: str = option("name of the environment, e.g. test-4711", ...)
    owner: str = option("email address of the owner", ...)
    account: str = option("AWS account, the only one that the environment allows", ...)
    hours: float = option("hours until it expires (default 8)", 8.0, at_least=1, at_most=720)
    budget: float = option("US dollars per month from which the owner gets mail (default 100)", 100.0)


@dataclass(frozen=True, kw_only=True)
class ClusterTestOptions:
    """Options of `cluster-test`."""

    owner: str = option("email address of the owner, a tag on everything", ...)
    account: str = option("AWS account, the only one that may hold the cluster", ...)
    ttl: str = option("time to live, e.g. 90m or 4h, 72h at most (default 4h); `reap` deletes what is left then", "4h")
    name: str | None = option("name of the environment, e.g. test-4711 (default: a new one)")
    promote_from: str | None = option("environment whose images to copy; default: build them", metavar="ENV")
    max_usd: float = option("refuse a test that may cost more US dollars (default 100)", 100.0, at_least=0)
    budget: float = option("US dollars per month from which the owner gets mail (default 100)", 100.0)
    keep_on_fail: bool = option("keep a cluster whose test failed; it is billed until `down`", default=False)
    out: Path | None = option("folder of the results (default .local/cluster-test/NAME)", metavar="FOLDER")


@dataclass(frozen=True, kw_only=True)
class ChangeOptions(EnvironmentOptions):
    """Options of commands that change a stack."""

    yes: bool = option("do not ask for confirmation", default=False)


@dataclass(frozen=True, kw_only=True)
class DownOptions(ChangeOptions):
    """Options of `down`."""

    confirm: str | None = option(
        "the environment's name again: confirms everything, also for kind prod, for which --yes is not enough",
        metavar="ENV",
    )
    unreachable: bool = option(
        "destroy the stack of a cluster that exists and does not answer, without emptying it", default=False
    )


@dataclass(frozen=True, kw_only=True)
class LeaksOptions(EnvironmentOptions):
    """Options of `leaks`."""

    json: bool = option("print the result as JSON", default=False)
    policy: bool = option("instead: print the IAM policy that the audit needs", default=False)


@dataclass(frozen=True, kw_only=True)
class ReapOptions:
    """Options of `reap`."""

    account: str | None = option("refuse credentials of another account than this one")
    region: tuple[str, ...] = option("region to look in; may be repeated (default: that of the AWS settings)", ())
    stack: tuple[str, ...] = option(
        "remove this test cluster only, also if its tags do not say when it expires; may be repeated",
        (),
        metavar="NAME",
    )
    dry_run: bool = option("show what would be removed, and change nothing", default=False)
    yes: bool = option("do not ask for confirmation; needs --account", default=False)
    minutes: float = option("minutes that a step may take (default 40)", 40.0, at_least=0)
    json: bool = option("print the result as JSON, and progress on standard error", default=False)
    policy: bool = option("instead: print the IAM policy that the reaper needs", default=False)


@dataclass(frozen=True, kw_only=True)
class UpdateOptions(ChangeOptions):
    """Options of a command that updates a stack with jobs."""

    jobs: Literal["wait", "drain", "go"] | None = option(
        "if nodes with jobs roll: wait until the jobs end, drain them (they save and resume), or go on; default: ask"
    )
    hours: float = option("with wait or drain, hours until the command gives up (default 24)", 24.0, at_least=0)


@dataclass(frozen=True, kw_only=True)
class UpOptions(UpdateOptions):
    """Options of `up`."""

    promote_from: str | None = option(
        "environment whose images to copy if this one's registry lacks them; default: build them", metavar="ENV"
    )


@dataclass(frozen=True, kw_only=True)
class UpgradeOptions(ChangeOptions):
    """Options of `upgrade`."""

    to: str | None = option("release to upgrade to, which has to be this checkout's (default: it)", metavar="VERSION")
    plan: bool = option("only print the plan and what has to be repaired first", default=False)
    canary: str | None = option("GPU group that is updated before the others (default: the first)", metavar="GROUP")
    verify: bool = option("run the conformance tests on the canary group before the others follow", default=False)
    jobs: Literal["wait", "drain", "go"] = option(
        "if nodes with jobs roll: wait until the jobs end, drain them (they save and resume), or go on (default drain)",
        "drain",
    )
    hours: float = option("with wait or drain, hours until a step gives up (default 24)", 24.0, at_least=0)
    only: str | None = option("take only this step of the plan", metavar="STEP")
    rollback: bool = option("with --only, take a step back to the older release of this checkout", default=False)


@dataclass(frozen=True, kw_only=True)
class DriftOptions(UpdateOptions):
    """Options of `drift`."""

    json: bool = option("print JSON", default=False)
    fix: bool = option("take back what it can, after a question or with --yes", default=False)


@dataclass(frozen=True, kw_only=True)
class TunnelOptions(EnvironmentOptions):
    """Options of `tunnel`."""

    port: int = option("port of this machine (default 8443)", 8443, at_least=1, at_most=65535)


@dataclass(frozen=True, kw_only=True)
class QueuesOptions(EnvironmentOptions):
    """Options of `release-queues`."""

    outputs: Path | None = option(
        "outputs of the stack, to connect through $KUBECONFIG (default: $RTP_STACK_OUTPUTS, else pulumi's)",
        metavar="FILE",
    )


@dataclass(frozen=True, kw_only=True)
class CapacityOptions(QueuesOptions):
    """Options of `capacity`."""

    for_: int | None = option(
        "number of nodes to look for; default: show the calendar", metavar="NODES", at_least=1, at_most=1000
    )
    group: str | None = option("GPU group whose instance type is looked for (default: the only one)")
    hours: float = option("hours for which the nodes are needed (default 24)", 24.0, at_least=1, at_most=8760)
    from_: str | None = option(
        "earliest start: 2026-12-01 in UTC, or 2026-12-01T09:00+01:00 (default now)", metavar="DAY"
    )
    region: tuple[str, ...] = option("AWS region to look in (default: that of the environment)", ())
    out: Path | None = option("draw the calendar as .svg, .html, .png or .pdf", metavar="FILE")
    json: bool = option("print JSON", default=False)


@dataclass(frozen=True, kw_only=True)
class HoldOptions(QueuesOptions):
    """Options of `hold`."""

    drain: bool = option("evict jobs that run: they save, and resume by themselves after the release", default=False)
    hours: float = option(
        "hours to wait until no job runs (default 24, the default deadline of a job)", 24.0, at_least=0
    )


@dataclass(frozen=True, kw_only=True)
class DeployerPolicyOptions(EnvironmentOptions):
    """Options of `deployer-policy`."""

    account: str | None = option("AWS account, if aws.allowed_accounts has several")
    file: Path | None = option("write FILE-1.json, FILE-2.json and so on; default: print them", metavar="FILE.json")


@dataclass(frozen=True, kw_only=True)
class SandboxOptions(EnvironmentOptions):
    """Options of `sandbox`."""

    crds: Path | None = option("folder of CRDs in YAML; default: those of charts and engines", metavar="FOLDER")
    real: tuple[str, ...] = option(
        "nodes that run pods: GROUP=COUNT, or 1 for one node of each group that a job needs; as root, on Linux",
        (),
        metavar="GROUP=COUNT",
    )
    images: Literal["all", "none"] = option(
        "with --real: build our images where they have changed, and push them to the sandbox's registry (all), or leave pods "
        "waiting for them (none)",
        "all",
    )


@dataclass(frozen=True, kw_only=True)
class EnginesOptions:
    """Options of `engines`."""

    real: bool = option("build the programs of `sandbox --real` too", default=False)


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Options of `image`."""

    image: Literal["trainer", "session", "mlflow"] | None = argument("image to build (default all)")
    variant: Literal["cuda", "cpu"] = option("variant of the trainer and the session (default cuda)", "cuda")
    push: bool = option("push to the environment's registry, and write tag and digest into the release", default=False)
    env: str | None = option(
        f"with --push or --from, the environment whose registry to use: {', '.join(environment_names())}"
    )
    from_: Path | None = option(
        "instead: derive an image with the packages of this folder's requirements.txt, and push it", metavar="FOLDER"
    )


@dataclass(frozen=True, kw_only=True)
class PromoteOptions:
    """Options of `promote`."""

    image: Literal["trainer", "session", "mlflow"] | None = argument("image to copy (default all)")
    from_: str = option("environment whose registry has the images", ..., metavar="ENV")
    to: str = option("environment whose registry gets them", ..., metavar="ENV")
    from_profile: str | None = option("AWS profile for the registry of --from (default: the SDK's)")
    to_profile: str | None = option("AWS profile for the registry of --to (default: the SDK's)")
