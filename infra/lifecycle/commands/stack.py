"""Change a stack, after the preflight."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from infra.kube.api import KubernetesApi
from infra.kube.connection import API_SERVER
from infra.lifecycle.access.tunnel import open_tunnel
from infra.lifecycle.commands.case import answer, case_of, connected, ready_case
from infra.lifecycle.commands.own_images import OwnImages
from infra.lifecycle.commands.recovery import api_of, end_holds, name_immutable, naming_holds, recover
from infra.lifecycle.drift.cluster import rebind_volumes
from infra.lifecycle.options import (
    ChangeOptions,
    DriftOptions,
    EnvironmentOptions,
    TunnelOptions,
    UpdateOptions,
    UpOptions,
)
from infra.lifecycle.preflight import checks
from infra.lifecycle.preflight.case import Case
from infra.lifecycle.preflight.database import pending_changes
from infra.lifecycle.rollout.database import explain_database
from infra.lifecycle.rollout.jobs import queued_jobs
from infra.lifecycle.rollout.plan import CHOICES, Choice, RollPlan, explain, plan_of_update
from infra.lifecycle.rollout.update import GuardedUpdate, jobs_of
from infra.lifecycle.show import print_line
from infra.lifecycle.stack import pulumi_cli
from infra.lifecycle.stack.bring_up import BringUp
from infra.spec.errors import ExitStatus, RefusedError
from infra.spec.names import cluster_name, database_identifier
from infra.spec.settings import check_account, load_environment
from platform_charts.charts.crds import is_newer

_HOUR = 3600


def preflight(options: EnvironmentOptions) -> int:
    """Run the preflight."""
    case = case_of(options.env)
    with connected(case):
        _check(case)
    print_line(f"{options.env}: preflight passed")
    return 0


def preview(options: ChangeOptions) -> int:
    """Run the preflight, then `pulumi preview`, and say what an update does to jobs; returns pulumi's exit status."""
    case = ready_case(options.env)
    with connected(case), naming_holds(case):
        _check(case)
        status, document = pulumi_cli.shown_preview(options.env)
        _explain_database(case, document)
        if status:
            name_immutable(case)
        elif (api := case.cluster.api()) is not None:
            _explain(plan_of_update(document), api)
    return status


def _explain_database(case: Case, document: Mapping[str, Any]) -> None:
    name = database_identifier(case.settings)
    for line in explain_database(document, pending=lambda: pending_changes(case.session, name)):
        print_line(line)


def _explain(plan: RollPlan, api: KubernetesApi) -> None:
    for line in explain(plan, jobs_of(plan, api), queued_jobs(api, plan.teams)):
        print_line(line)


def up(options: UpOptions) -> int:
    """Run the preflight, then `pulumi up`, as often as it takes; returns pulumi's exit status."""
    if options.promote_from is not None:
        load_environment(options.promote_from)
    case = ready_case(options.env)

    def pulumi(*targets: str) -> int:
        return pulumi_cli.run("up", environment=options.env, is_confirmed=options.yes, targets=targets)

    with connected(case), naming_holds(case):
        _check(case)
        recover(case, api_of(case))
        return BringUp(
            settings=case.settings,
            account=case.account,
            session=case.session,
            probe=case.probe,
            images=OwnImages(options.env, promote_from=options.promote_from),
            pulumi=pulumi,
            update=lambda: update(options, case),
            say=print_line,
        ).run()


def take_back(options: DriftOptions, case: Case, *, excluded: Sequence[str]) -> int:
    """Run the preflight, then an update that first reads what there is; returns pulumi's exit status."""
    _check(case)
    return update(options, case, refreshes=True, excluded=excluded)


def update(options: UpdateOptions, case: Case, *, refreshes: bool = False, excluded: Sequence[str] = ()) -> int:
    """Update a stack, with the jobs kept off the nodes that it replaces; returns pulumi's exit status.

    The program runs twice: for the preview, which the user confirms, and for the update. If nothing changes, once.
    """
    pulumi = partial(pulumi_cli.run, "up", environment=options.env, refreshes=refreshes, excluded=excluded)
    api = case.cluster.api()
    if api is None:
        return pulumi(is_confirmed=options.yes)
    status, document = pulumi_cli.shown_preview(options.env, refreshes=refreshes, excluded=excluded)
    if status:
        name_immutable(case)
        return status
    if pulumi_cli.is_unchanged(document) and not _crds_to_apply(case):
        print_line(f"{options.env} is up to date")
        end_holds(case)
        return ExitStatus.DONE
    _explain_database(case, document)

    def perform() -> int:
        rebind_volumes(api, case.state or {})
        return pulumi(is_confirmed=True, is_previewed=True)

    status = GuardedUpdate(
        environment=options.env,
        api=api,
        preview=document,
        confirm=lambda: _confirm(options),
        pulumi=perform,
        choose=lambda: _choice(options.jobs),
        seconds=options.hours * 3600,
        say=print_line,
    ).run()
    if status == ExitStatus.DONE:
        end_holds(case)
    return status


def _crds_to_apply(case: Case) -> bool:
    """Whether the cluster lacks a CRD of the release, or has it of an older chart: an update applies them beside its resources."""
    live = {one["metadata"]["name"]: one for one in case.crds_of_cluster or ()}
    pairs = ((one, live.get(one["metadata"]["name"])) for one in checks.crds_of_release(case))
    return any(found is None or is_newer(one, found) for one, found in pairs)


def _confirm(options: UpdateOptions) -> None:
    if not options.yes and answer(f"type {options.env} to perform this update: ") != options.env:
        raise RefusedError("nothing was changed", remedy="answer with the environment's name, or set YES=1")


def _choice(given: Choice | None) -> Choice:
    """What to do about jobs on nodes that roll: as given, or as the user types.

    Raises:
        RefusedError: neither.
    """
    if given is not None:
        return given
    typed = answer(f"{', '.join(CHOICES)}? ")
    for choice in CHOICES:
        if typed == choice:
            return choice
    raise RefusedError(
        "nothing was changed: jobs run on nodes that roll, or of a team that is removed",
        remedy="set JOBS=wait, JOBS=drain or JOBS=go",
    )


def _check(case: Case) -> None:
    checks.check(case)
    for note in checks.notes(case):
        print_line(f"note: {note}")


def tunnel(options: TunnelOptions) -> int:
    """Forward a port of this machine to the API server until interrupted."""
    case = case_of(options.env)
    check_account(case.settings, case.caller.account)
    if case.account.endpoint is None:
        lacks = "has no nodes of the stack" if case.settings.cluster.is_shared else "does not exist"
        raise RefusedError(f"{cluster_name(case.settings)} {lacks}", remedy=f"bring it up: `make up ENV={options.env}`")
    with open_tunnel(case.settings, case.session, case.account.endpoint, port=options.port) as url:
        print_line(f"{case.account.endpoint} is at {url} until you press Ctrl-C. In other terminals:")
        print_line(f"  export {API_SERVER}={url}")
        while True:
            time.sleep(_HOUR)
