"""Before a stack is changed: make good what an update that was killed has left in its state and in Helm's records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from infra.kube.api import KubernetesApi
from infra.lifecycle.drift.cluster import compare, objects_of_state
from infra.lifecycle.preflight.case import Case
from infra.lifecycle.rollout.hold import holds_in_use, release_surely, say_held
from infra.lifecycle.show import print_line
from infra.lifecycle.stack import pulumi_cli
from infra.lifecycle.stack.lock import check_unlocked
from infra.lifecycle.stack.releases import apply_repair, find_repairs
from infra.lifecycle.stack.state import Interrupted, resources_in, settle_interrupted, state_of
from infra.lifecycle.teardown.deletion import describe, is_deleted, lines_of
from infra.lifecycle.teardown.namespaces import kept_namespaces
from infra.policy.tokens import CLUSTER
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.manifest import MANAGED_BY, PART_OF
from infra.spec.outputs import ClusterOutput
from platform_charts.charts.installs import chart_installs
from platform_charts.objects.namespaces import kubernetes_minor

_DELETION_SECONDS = 120.0
_POLL_SECONDS = 1.0


def recover(case: Case, api: KubernetesApi | None, *, is_teardown: bool = False) -> None:
    """Make the state agree with what interrupted operations have done, and with Helm's records.

    Args:
        case: the environment.
        api: API server of its cluster, see `api_of`; None leaves the releases as they are.
        is_teardown: the stack is removed next, and not updated.

    Raises:
        RefusedError: another pulumi runs, or was killed and holds the lock; or something is still being deleted.
        PlatformError: pulumi or the API server failed; carries its message.
    """
    if case.state is None:
        return
    name, state = case.settings.environment.name, case.state
    interrupted = state_of(state).interrupted
    repairs = [] if api is None else list(find_repairs(api, state, _releases(case), is_teardown=is_teardown))
    if not interrupted and not repairs:
        return
    check_unlocked(name)
    pulumi_cli.end_orphans()
    print_line("the last update was interrupted; what it left is made good first:")
    for one in interrupted:
        print_line(
            f"  {one}: {'repeated' if is_teardown or not one.is_unclear else 'read again'}, since nobody saw its end"
        )
    if interrupted:
        if api is not None and not is_teardown:
            _await_deleted(api, interrupted)
        elif api is not None:
            _delete_lost(api, state, interrupted)
        state = settle_interrupted(name, () if is_teardown else interrupted)
    for repair in repairs:
        assert api is not None, "they come from it"
        print_line(f"  {repair}")
        apply_repair(api, state, repair, environment=name)


def _await_deleted(
    api: KubernetesApi, interrupted: Iterable[Interrupted], *, seconds: float = _DELETION_SECONDS
) -> None:
    """Wait for objects that are being deleted: an update could make nothing in such a namespace.

    Raises:
        RefusedError: some are still there; names each with its finalizers.
    """
    gone = [one.inputs for one in interrupted if one.operation == "deleting" and one.inputs.get("kind")]
    deadline, is_said = time.monotonic() + seconds, False
    while left := [live for one in gone if (live := api.read(dict(one))) is not None and is_deleted(live)]:
        if time.monotonic() > deadline:
            why = "".join(f"\n  {line}" for line in kept_namespaces(api))
            raise RefusedError(
                f"what the interrupted command deletes is still there after {seconds:.0f} s:{lines_of(left)}{why}",
                remedy="wait until it is gone, or let go of what keeps it, then repeat the command",
            )
        if not is_said:
            print_line(f"  waiting until they are deleted: {describe(left)}")
            is_said = True
        time.sleep(_POLL_SECONDS)


def _delete_lost(api: KubernetesApi, state: Mapping[str, Any], interrupted: Iterable[Interrupted]) -> None:
    """Delete the stack's objects that were created and that the state lacks: a destroy would leave them on a cluster that stays."""
    known = {one["urn"] for one in resources_in(state)}
    for one in interrupted:
        if one.operation == "creating" and one.inputs.get("kind") and one.urn not in known:
            live = api.read(dict(one.inputs))
            if live is not None and live["metadata"].get("labels", {}).get(PART_OF) == MANAGED_BY:
                print_line(f"  {describe([live])}: deleted")
                api.delete(live)


@contextmanager
def naming_holds(case: Case, *, say: Callable[[str], None] = print_line) -> Iterator[None]:
    """Say last which queues are held, whatever ends the command: nothing else shows why no job starts."""
    try:
        yield
    finally:
        with suppress(PlatformError):  # why the cluster cannot be asked is the command's own error
            if (api := case.cluster.api()) is not None:
                say_held(api, env=case.settings.environment.name, say=say)


def end_holds(case: Case) -> None:
    """Release the queues that an update held which was killed, once another one has done its work."""
    if (api := case.cluster.api()) is None:
        return
    with suppress(PlatformError):  # what cannot be read now is said to be held, at the end
        if held := holds_in_use(api):
            print_line(f"queues {', '.join(held)} stay held by another update, which still runs")
            return
    release_surely(api, env=case.settings.environment.name, say=print_line)


def name_immutable(case: Case) -> None:
    """After a failed preview, name the objects that somebody made anew with fields that nobody can change: it ends at the first of them."""
    if (api := case.cluster.api()) is not None:
        for one in compare(api, objects_of_state(case.state or {}).values()):
            if one.kind == "immutable":
                print_line(str(one))


def api_of(case: Case) -> KubernetesApi | None:
    """The API server also of a first update that was killed: the stack has its outputs only at the end of one."""
    clusters = (one for one in resources_in(case.state or {}) if one["type"] == CLUSTER and one.get("outputs"))
    found = next((one["outputs"] for one in clusters), None)
    if (known := case.api) is not None or found is None:
        return known
    authority = found["certificateAuthority"]["data"]
    minor = kubernetes_minor(case.settings, case.release)
    cluster = ClusterOutput(
        name=found["name"], endpoint=found["endpoint"], certificate_authority=authority, kubernetes=minor
    )
    return case.connect(cluster, region=case.settings.aws.region)


def _releases(case: Case) -> list[tuple[str, str]]:
    """Namespace and name of each release of the program."""
    installs = chart_installs(case.settings, case.release, case.catalog, registry="any", alert_topic="")
    return [(one.namespace, one.name) for one in installs.values()]
