"""Upgrade a stack to the release of this checkout."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packaging.version import Version

from infra.kube.api import KubernetesApi
from infra.lifecycle.commands.case import answer, connected, ready_case
from infra.lifecycle.commands.recovery import end_holds, name_immutable, naming_holds, recover
from infra.lifecycle.disposable.conformance import run_conformance
from infra.lifecycle.options import UpgradeOptions
from infra.lifecycle.preflight import checks
from infra.lifecycle.preflight.case import Case
from infra.lifecycle.release.aws_versions import AwsSource
from infra.lifecycle.show import print_line
from infra.lifecycle.stack import pulumi_cli
from infra.lifecycle.upgrade.absence import count_nodes
from infra.lifecycle.upgrade.backups import ClusterBackups
from infra.lifecycle.upgrade.changes import changes_between, check_direction
from infra.lifecycle.upgrade.checks import ROLLBACK_CHECKS, Upgraded, notes, problems, running_minor
from infra.lifecycle.upgrade.division import gpu_groups, plan_of
from infra.lifecycle.upgrade.run import Upgrade
from infra.lifecycle.upgrade.steps import STEPS, TAKEN_BACK, UpgradePlan, lines_of
from infra.spec.errors import ExitStatus, PlatformError, RefusedError, SettingsError
from infra.spec.outputs import KEPT_RELEASE
from infra.spec.release import ReleaseManifest
from infra.spec.section import nearest, validate
from infra.spec.settings import load_environment
from infra.spec.stack_outputs import outputs_of_stack


def upgrade(options: UpgradeOptions) -> int:
    """Check, plan, and take the steps of the upgrade; with `--plan` only print them.

    Returns:
        pulumi's exit status; with `--plan`, 1 if something has to be repaired first.
    """
    _check_options(options)
    _check_canary(options)
    case = ready_case(options.env)
    _check_target(options, case.release)
    deployed = outputs_of_stack(options.env)
    with connected(case), naming_holds(case):
        api = _connect(options.env, case)
        if not options.plan:
            recover(case, api)
        _check_direction(options, case, deployed, running=running_minor(api))
        for line in _changes(deployed, case.release):
            print_line(line)
        preview = _preview(options.env, case)
        canary = options.canary or next(iter(gpu_groups(preview)), None)
        plan = plan_of(preview, canary=canary)
        plan = plan if options.only is None else plan.only(options.only)
        upgraded = _upgraded(case, api)
        found = _problems(options, case, upgraded)
        _print_plan(plan, upgraded)
        if options.plan:
            for problem in found:
                print_line(f"to repair first: {problem}")
            for change in plan.forbidden:
                print_line(f"not allowed, it would lose state: {change}")
            return ExitStatus.FAILED if found or plan.forbidden else ExitStatus.DONE
        _check_plan(options.env, plan, found)
        if options.rollback:
            _keep_release(deployed)
        status = _run(options, api, plan, canary=canary)
        if status == ExitStatus.DONE and options.only is None:
            end_holds(case)
        return status


def _check_options(options: UpgradeOptions) -> None:
    """Refuse a wrong combination before anything is asked.

    Raises:
        SettingsError: there is no such step, or no step to take back.
        RefusedError: the step has no way back.
    """
    if options.only is not None and options.only not in STEPS:
        raise SettingsError(
            f"--only {options.only}: unknown step ({nearest(options.only, STEPS)})", remedy=f"one of {', '.join(STEPS)}"
        )
    if not options.rollback:
        return
    if options.only is None:
        raise SettingsError("ROLLBACK=1 takes back one step", remedy="name it with ARGS='--only STEP'")
    if options.only not in TAKEN_BACK:
        raise RefusedError(
            f"step {options.only} has no way back",
            remedy=f"take back one of {', '.join(TAKEN_BACK)}, or repair the step and repeat `make upgrade`",
        )


def _check_target(options: UpgradeOptions, release: ReleaseManifest) -> None:
    """Refuse another version than this checkout's: a release is its code as well as its versions.

    Raises:
        RefusedError: says how to get the other one.
    """
    if options.to is not None and options.to.removeprefix("v") != release.platform:
        raise RefusedError(
            f"this checkout is release {release.platform}, not {options.to}",
            remedy=f"check out the release, e.g. `git checkout v{options.to.removeprefix('v')}`, and repeat the command there",
        )


def _connect(env: str, case: Case) -> KubernetesApi:
    api = case.cluster.api()
    if api is None:
        raise RefusedError(f"{env} has no cluster to upgrade", remedy=f"bring it up: `make up ENV={env}`")
    return api


def _check_direction(options: UpgradeOptions, case: Case, deployed: Mapping[str, Any], *, running: str) -> None:
    """Refuse a release that the stack cannot go to.

    Raises:
        RefusedError: it is older or skips a minor; when a step is taken back, it is newer.
    """
    before, after = str(deployed["platform"]), case.release.platform
    if not options.rollback:
        check_direction(before, after, kubernetes=running, target=_kubernetes(case))
    elif Version(after) > Version(before):
        raise RefusedError(
            f"ROLLBACK=1 goes back to an older release; the stack runs {before}, and this checkout is {after}",
            remedy="check out the release before, or leave ROLLBACK=1 out",
        )


def _kubernetes(case: Case) -> str:
    return case.settings.cluster.kubernetes or case.release.kubernetes.version


def _release_of(deployed: Mapping[str, Any]) -> ReleaseManifest | None:
    """The release that deployed the stack; None if the stack is older than the output, or newer than its contract."""
    try:
        return validate(ReleaseManifest, json.loads(deployed["release"]), file="output release")
    except (KeyError, ValueError, PlatformError):
        return None


def _changes(deployed: Mapping[str, Any], release: ReleaseManifest) -> Iterator[str]:
    old = _release_of(deployed)
    if old is None:
        yield f"the stack runs release {deployed['platform']}, whose versions its outputs do not say"
        return
    found = changes_between(old, release)
    if not found:
        yield f"the stack runs the versions of release {release.platform}"
    yield from map(str, found)


def _preview(env: str, case: Case) -> Mapping[str, Any]:
    print_line("reading what the update changes")
    try:
        return pulumi_cli.preview_document(env, has_policies=True)
    except PlatformError:
        name_immutable(case)
        raise


def _check_canary(options: UpgradeOptions) -> None:
    """Refuse a canary group that the settings do not have, before anything is asked."""
    groups = [one.name for one in load_environment(options.env).gpu_groups]
    if options.canary is not None and options.canary not in groups:
        known = ", ".join(groups) or "none: the environment has no GPU group"
        raise SettingsError(f"CANARY={options.canary}: unknown GPU group", remedy=f"known groups: {known}")


def _upgraded(case: Case, api: KubernetesApi) -> Upgraded:
    return Upgraded(
        environment=case.settings.environment.name,
        release=case.release,
        kubernetes=_kubernetes(case),
        api=api,
        aws=AwsSource(ssm=case.session.client("ssm"), eks=case.session.client("eks")),
        backups=ClusterBackups(api, now=case.now),
        addon_names=tuple(filter(case.settings.installs_addon, case.release.addons)),
    )


def _problems(options: UpgradeOptions, case: Case, upgraded: Upgraded) -> tuple[checks.Problem, ...]:
    """What has to be repaired first. A step that is taken back leaves newer CRDs as they are."""
    if options.rollback:
        without_crds = [check for check in checks.CHECKS if check not in checks.OF_CRDS]
        return (*checks.problems(case, without_crds), *problems(upgraded, ROLLBACK_CHECKS))
    return (*checks.problems(case), *problems(upgraded))


def _print_plan(plan: UpgradePlan, case: Upgraded) -> None:
    groups = frozenset[str]().union(*(step.roll.groups for step in plan.steps))
    for line in (*lines_of(plan, count_nodes(case.api)), *notes(case, groups=groups)):
        print_line(line)


def _check_plan(env: str, plan: UpgradePlan, found: Sequence[checks.Problem]) -> None:
    """Refuse a plan that loses state, and a stack that is not ready for one.

    Raises:
        RefusedError: lists every reason.
    """
    if plan.forbidden:
        lines = "".join(f"\n  {one}" for one in plan.forbidden)
        raise RefusedError(
            f"the upgrade of {env} would lose state:{lines}",
            remedy="a release may not replace or delete these; report it, and stay on the release that runs",
        )
    if found:
        lines = "".join(f"\n  {problem}" for problem in found)
        raise RefusedError(f"{env} is not ready to be upgraded: {len(found)} problem(s){lines}")


def _keep_release(deployed: Mapping[str, Any]) -> None:
    """Let the outputs name the newer release, which everything but one step is still of."""
    os.environ[KEPT_RELEASE] = json.dumps(
        {name: deployed[name] for name in ("platform", "release") if name in deployed}
    )


def _run(options: UpgradeOptions, api: KubernetesApi, plan: UpgradePlan, *, canary: str | None) -> int:
    count = len(plan.steps)
    if not count:
        print_line("nothing to do")
        return ExitStatus.DONE
    steps = f"{count} step{'s' * (count != 1)}"
    if not options.yes and answer(f"type {options.env} to take {steps}: ") != options.env:
        raise RefusedError("nothing was changed", remedy="answer with the environment's name, or set YES=1")
    is_verified = options.verify and canary is not None and not options.rollback
    question = f"GPU group {canary} is updated. Go on with the others? yes/no "
    return Upgrade(
        environment=options.env,
        api=api,
        steps=plan.steps,
        pulumi=lambda excluded: pulumi_cli.run("up", environment=options.env, is_confirmed=True, excluded=excluded),
        preview=lambda: pulumi_cli.preview_document(options.env),
        choose=lambda: options.jobs,
        verify=lambda: run_conformance(options.env, "--group", str(canary)) if is_verified else ExitStatus.DONE,
        proceeds=lambda: options.yes or options.rollback or answer(question) == "yes",
        seconds=options.hours * 3600,
        say=print_line,
    ).run()
