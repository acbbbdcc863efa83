"""Report how account and cluster differ from what the stack made, and take that back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError
from infra.lifecycle.commands.case import answer, connected, ready_case
from infra.lifecycle.commands.recovery import naming_holds
from infra.lifecycle.commands.stack import take_back as update_with_refresh
from infra.lifecycle.drift.account import compare_preview
from infra.lifecycle.drift.cluster import compare, objects_of_state, refused_objects, take_back
from infra.lifecycle.drift.difference import Difference
from infra.lifecycle.drift.helm import RELEASE, changed_releases, installed_releases, way_back
from infra.lifecycle.options import DriftOptions
from infra.lifecycle.preflight.case import Case
from infra.lifecycle.preflight.checks import crds_of_release
from infra.lifecycle.show import print_line
from infra.lifecycle.stack import pulumi_cli
from infra.lifecycle.stack.lock import check_unlocked
from infra.lifecycle.stack.state import export_state, state_of
from infra.spec.errors import ExitStatus, PlatformError, RefusedError, SettingsError
from infra.spec.manifest import Manifest
from platform_charts.charts.crds import of_deployed_charts


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What differs, by what takes it back.

    Attributes:
        by_update: resources of the program.
        by_apply: CRDs and objects of charts.
    """

    by_update: tuple[Difference, ...]
    by_apply: tuple[Difference, ...]

    def all(self) -> list[Difference]:
        return sorted((*self.by_update, *self.by_apply))

    def reversible(self) -> _Found:
        """Those that an update, or applying the object, takes back."""
        by_update, by_apply = (
            tuple(one for one in found if one.kind in {"changed", "deleted"})
            for found in (self.by_update, self.by_apply)
        )
        return replace(self, by_update=by_update, by_apply=by_apply)


def drift(options: DriftOptions) -> int:
    """Print every difference, and take them back if asked to; fails if one is left, or if something could not be compared.

    Raises:
        SettingsError: options that exclude each other.
        RefusedError: another pulumi runs, the last update was interrupted, or the user did not confirm.
        ConnectionLostError: the cluster does not answer.
    """
    if not options.fix and (options.yes or options.jobs):
        raise SettingsError("--yes and --jobs are for --fix: nothing else changes anything", remedy="add FIX=1")
    if options.fix and options.json:
        raise SettingsError(
            "--json is for a schedule, which nobody watches: it takes nothing back", remedy="leave JSON or FIX out"
        )
    case = ready_case(options.env)
    state = case.state or {}
    _check_settled(options.env, state)
    say = _say_beside_json if options.json else print_line
    with connected(case, say=say), naming_holds(case, say=say):
        # First, because Pulumi explains a cluster that does not answer by what to do about one that is gone.
        in_cluster = _in_cluster(case, state)
        refused = refused_objects(state, in_cluster.by_update)
        try:
            preview = pulumi_cli.preview_document(options.env, refreshes=True, excluded=refused)
        except PlatformError:  # the cluster's differences are known
            for one in in_cluster.all():
                _say_beside_json(str(one))
            raise
        theirs = [one.resource.rpartition("/")[2] for one in in_cluster.by_update if one.resource.startswith(RELEASE)]
        account = compare_preview(preview, releases=theirs)
        found = replace(in_cluster, by_update=(*account.differences, *in_cluster.by_update))
        if options.json:
            _print_json(options.env, found, account.undeployed)
        else:
            _print(options, found, account.undeployed)
        if options.fix and found.reversible().all():
            return _fix(options, case, found.reversible(), excluded=refused)
    return ExitStatus.FAILED if found.all() else ExitStatus.DONE


def _check_settled(env: str, state: Mapping[str, Any]) -> None:
    """Refuse a stack in the middle of a change, whose state is not what there will be.

    Raises:
        RefusedError: another pulumi runs or was killed; says how to go on.
    """
    check_unlocked(env)
    if interrupted := state_of(state).interrupted:
        raise RefusedError(
            f"nothing was compared: the last change of stack {env} was interrupted, and its state does not say how "
            f"{len(interrupted)} operations ended, e.g. {interrupted[0]}",
            remedy=f"finish it: `make up ENV={env}`, then repeat the command",
        )


def _fix(options: DriftOptions, case: Case, found: _Found, *, excluded: Sequence[str]) -> int:
    if found.by_update:
        print_line("the resources of the program first, by an update that reads what there is:")
        if status := update_with_refresh(options, case, excluded=excluded):
            return status
    api = case.cluster.api()
    if found.by_apply and api is not None:
        _confirm(options, found.by_apply)
        for problem in take_back(api, found.by_apply):
            print_line(f"not taken back: {problem}")
    state = export_state(options.env)
    left = _in_cluster(case, state).all()
    for one in left:
        print_line(f"still differs: {one}")
        if one.resource.startswith(RELEASE) and api is not None:
            print_line(f"  take it back with Helm: {way_back(api, state, one)}")
    print_line(f"{options.env}: {len(left) or 'no'} difference{'s' * (len(left) != 1)} left in the cluster")
    return ExitStatus.FAILED if left else ExitStatus.DONE


def _confirm(options: DriftOptions, differences: Sequence[Difference]) -> None:
    print_line("CRDs and objects of charts that are applied again, with the fields that the chart sets:")
    for one in differences:
        print_line(f"  {one}")
    if not options.yes and answer(f"type {options.env} to apply them: ") != options.env:
        raise RefusedError(
            "nothing of them was applied", remedy="answer with the environment's name, or set YES=1 beside FIX=1"
        )


def _say_beside_json(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_json(environment: str, found: _Found, waiting: int) -> None:
    is_complete = not any(one.kind == "unknown" for one in found.all())
    differences = [one.dump() for one in found.all()]
    document = {"environment": environment, "is_complete": is_complete, "differences": differences}
    print_line(json.dumps({**document, "undeployed": waiting}, indent=2))


def _print(options: DriftOptions, found: _Found, waiting: int) -> None:
    for one in found.all():
        print_line(str(one))
    if waiting:
        deploys = "the update below deploys that as well; " if options.fix and found.by_update else ""
        print_line(
            f"note: the program would change {waiting} resource{'s' * (waiting != 1)}; that is no drift, "
            f"{deploys}`make preview ENV={options.env}` shows it"
        )
    number = len(found.all())
    remedy = f"; `make drift ENV={options.env} FIX=1` takes back what it can" if number and not options.fix else ""
    print_line(f"{options.env}: {number or 'no'} difference{'s' * (number != 1)}{remedy}")


def _in_cluster(case: Case, state: Mapping[str, Any]) -> _Found:
    by_update: list[Difference] = []
    by_apply: list[Difference] = []
    api = case.cluster.api()
    if api is not None:
        try:
            releases = tuple(installed_releases(api))
            by_update += compare(api, objects_of_state(state).values())
            by_update += changed_releases(releases, state)
            by_apply += compare(api, _crds(case, api))
            by_apply += compare(api, (one for release in releases for one in release.objects()))
        except ApiError as error:
            # What is left could not be compared.
            unknown = Difference(where="cluster", resource="API server", kind="unknown", paths=(str(error.args[0]),))
            by_update.append(unknown)
    return _Found(by_update=tuple(by_update), by_apply=tuple(by_apply))


def _crds(case: Case, api: KubernetesApi) -> Iterable[Manifest]:
    """The CRDs of the release that the stack has applied."""
    live = api.items("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    return of_deployed_charts(crds_of_release(case), live)
