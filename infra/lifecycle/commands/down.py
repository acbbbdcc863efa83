"""Take a stack down: confirm, empty the cluster, destroy, look for what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError, ConnectionLostError
from infra.lifecycle.account.aws import Clients
from infra.lifecycle.commands.case import allowed_case, answer, connected
from infra.lifecycle.commands.leftovers import leaks
from infra.lifecycle.commands.recovery import api_of, recover
from infra.lifecycle.leftovers.ownership import StackName
from infra.lifecycle.options import DownOptions, LeaksOptions
from infra.lifecycle.preflight.case import Case
from infra.lifecycle.repeating import repeating
from infra.lifecycle.show import print_line
from infra.lifecycle.stack import pulumi_cli
from infra.lifecycle.stack.lock import check_unlocked
from infra.lifecycle.stack.state import (
    StackState,
    check_interrupted,
    check_unprotected,
    read_state,
    resources_in,
)
from infra.lifecycle.teardown.deletion import describe
from infra.lifecycle.teardown.destroying import Destroying
from infra.lifecycle.teardown.giving_up import forget_cluster
from infra.lifecycle.teardown.interfaces import delete_interfaces
from infra.lifecycle.teardown.load_balancers import delete_exposed, find_exposed
from infra.lifecycle.teardown.namespaces import Within, kept_namespaces, own_namespaces
from infra.lifecycle.teardown.volumes import delete_claims, find_claims
from infra.lifecycle.teardown.workloads import (
    check_served,
    check_unused,
    delete_workloads,
    find_workloads,
    uses_of_others,
)
from infra.spec.errors import RefusedError
from infra.spec.names import cluster_name, database_identifier, stack_tag
from infra.spec.protection import EnvironmentKind
from infra.spec.settings import StackSettings

_NAMING_SECONDS = 15.0


def down(options: DownOptions) -> int:
    """Empty the cluster, run `pulumi destroy` in an allowed account, and list what is left.

    Returns:
        pulumi's exit status; 1 if the stack is gone and something is left in the account.
    """
    case = allowed_case(options.env)
    settings = case.settings
    state = read_state(options.env)
    if state is not None:
        _check_state(state, settings)
        check_unlocked(options.env)
    is_confirmed = _confirm(options, settings.environment.kind)
    with connected(case):
        api = _empty(options, case, is_confirmed=is_confirmed or options.yes)
        recover(case, api, is_teardown=True)
        status = Destroying(
            destroy=lambda: _destroy(options.env, api),
            resources=lambda: _resources(options.env),
            clear=lambda: _clear(case),
            obstacles=lambda: _obstacles(api),
            say=print_line,
        ).run()
    return status or leaks(LeaksOptions(env=options.env))


def _check_state(state: StackState, settings: StackSettings) -> None:
    """Refuse a state with which a destroy would fail or forget something, before any job is deleted."""
    environment = settings.environment
    # Pulumi repeats interrupted deletions by itself; of a test cluster, `make reap` finds what a state has forgotten.
    if environment.kind is not EnvironmentKind.TEST:
        check_interrupted(state, environment=environment.name, stack_tag=stack_tag(settings))
    check_unprotected(
        state,
        environment=environment.name,
        cluster=None if settings.cluster.is_shared else cluster_name(settings),
        database=database_identifier(settings),
    )


def _confirm(options: DownOptions, kind: EnvironmentKind) -> bool:
    """Have the name of a production environment typed; returns whether a name was given, here or on the command line.

    Raises:
        RefusedError: a name was needed and not given, or it is another one.
    """
    typed = options.confirm
    if typed is None and kind is not EnvironmentKind.PROD:
        return False
    if typed is None:
        typed = answer(f"type {options.env} to delete everything that runs in it: ")
    if typed != options.env:
        raise RefusedError(
            f"nothing was deleted: {typed!r} is not {options.env!r}",
            remedy=f"answer with the environment's name, or set CONFIRM={options.env}; YES=1 is not enough for kind prod",
        )
    return True


def _empty(options: DownOptions, case: Case, *, is_confirmed: bool) -> KubernetesApi | None:
    """Delete from the cluster what its controllers have to delete; returns its API server, None if there is none that answers.

    Raises:
        RefusedError: the cluster exists and does not answer, or an operator does not let go of what was deleted.
    """
    api = api_of(case)
    whole = f"destroy the stack, {len(resources_in(case.state or {}))} resources"
    if api is None:
        _ask(options.env, whole, is_confirmed=is_confirmed)
        return None
    try:
        within = own_namespaces(api) if case.settings.cluster.is_shared else None
        ask = partial(_ask, options.env, whole, is_confirmed=is_confirmed)
        _delete_contents(options.env, api, ask=ask, within=within)
    except ConnectionLostError as error:
        if case.account.endpoint is not None and not options.unreachable:
            raise RefusedError(
                f"nothing was destroyed: {error.args[0]}",
                remedy="check the network, `aws sso login` and `make tunnel`; if the cluster is broken for good, UNREACHABLE=1 "
                "destroys the stack without emptying it: `make leaks` finds the load balancers and volumes that are left",
            ) from error
        # A cluster that is gone must not keep the rest of its stack.
        print_line(f"note: the cluster is not emptied first: {error.args[0]}")
        _ask(options.env, "give its cluster up and destroy the stack", is_confirmed=is_confirmed)
        forget_cluster(options.env, say=print_line)
        return None
    return api


def _ask(env: str, what: str, *, is_confirmed: bool) -> None:
    """Have the environment's name typed, once in a command; Pulumi, which needs a terminal, asks nothing.

    Raises:
        RefusedError: it was not.
    """
    if not is_confirmed and answer(f"type {env} to {what}: ") != env:
        raise RefusedError("nothing was deleted", remedy="answer with the environment's name, or set YES=1")


def _delete_contents(env: str, api: KubernetesApi, *, ask: Callable[[], None], within: Within) -> None:
    check_served(api)
    check_unused(api)
    found = [*find_workloads(api, within=within), *find_exposed(api, within=within), *find_claims(api, within=within)]
    if found:
        print_line(f"{env} has jobs, load balancers or volumes, which are deleted first: {describe(found)}")
    ask()
    for delete in (delete_workloads, delete_exposed, delete_claims):
        delete(api, say=print_line, within=within)


def _destroy(environment: str, api: KubernetesApi | None) -> int:
    """Run `pulumi destroy`, and say meanwhile who uses what it deletes: Pulumi waits for ten minutes before it fails."""
    said = set[str]()

    def name_uses() -> None:
        for line in uses_of_others(api) if api is not None else ():
            if line not in said:
                print_line(f"note: {line}, and so keeps it: delete the first, or let it use another one")
                said.add(line)

    with repeating(name_uses, seconds=_NAMING_SECONDS):
        return pulumi_cli.run("destroy", environment=environment, is_confirmed=True)


def _clear(case: Case) -> int:
    account = case.caller.account
    clients = Clients(case.session, account=account)
    stack = StackName(case.settings.environment.name, account)
    return delete_interfaces(clients, case.settings.aws.region, stack, say=print_line)


def _resources(environment: str) -> int:
    state = read_state(environment)
    return 0 if state is None else state.resources


def _obstacles(api: KubernetesApi | None) -> Iterator[str]:
    """What else keeps resources of the stack, as far as the cluster still answers."""
    if api is None:
        return
    try:
        yield from kept_namespaces(api)
        yield from uses_of_others(api)
    except (ApiError, ConnectionLostError):
        return
