"""Test the platform on a cluster that is made for the test."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from infra.lifecycle.commands import down as down_commands
from infra.lifecycle.commands import stack as stack_commands
from infra.lifecycle.disposable.cluster_test import ClusterTest, Step
from infra.lifecycle.disposable.conformance import run_conformance
from infra.lifecycle.disposable.stack import ThrowAway, new_name, time_to_live
from infra.lifecycle.leftovers.guards import check_place
from infra.lifecycle.options import ClusterTestOptions, DownOptions, EnvironmentOptions, UpOptions
from infra.lifecycle.show import print_line
from infra.spec.catalog import load_catalog
from infra.spec.cost import CostEstimate, estimate_cost
from infra.spec.errors import RefusedError
from infra.spec.release_rules import ROOT
from infra.spec.settings import environment_names, load_environment
from infra.spec.signals import ENDINGS, interrupting
from infra.spec.stack_outputs import find_pulumi


def cluster_test(options: ClusterTestOptions) -> int:
    """Make a cluster from the template, test it, and take it down; returns the exit status of the first step that failed."""
    with interrupting(ENDINGS):  # so that any of these signals leaves no files behind
        return _cluster_test(options)


def _cluster_test(options: ClusterTestOptions) -> int:
    life = time_to_live(options.ttl)
    environments = [load_environment(name) for name in environment_names()]
    if options.promote_from is not None:
        load_environment(options.promote_from)
    check_place(options.account, wanted=options.account, needs_account=True, environments=environments)
    made = ThrowAway(
        name=options.name or new_name(),
        owner=options.owner,
        account=options.account,
        purpose="cluster-test",
        expires=datetime.now(UTC).replace(microsecond=0) + life,
        budget_usd=options.budget,
    )
    made.write()
    is_started = False
    try:
        hours = life.total_seconds() / 3600
        estimate = estimate_cost(load_environment(made.name), catalog=load_catalog())
        _check_price(estimate, hours, at_most=options.max_usd)
        print_line(f"{made.name}: expires at {made.expires.isoformat()}; {_price(estimate, hours)}")
        find_pulumi()
        stack_commands.preflight(EnvironmentOptions(env=made.name))
        made.make_passphrase()
        _make_stack(made.name)
        is_started = True
    finally:
        if not is_started:
            made.forget()
    return _tested(made, options)


def _tested(made: ThrowAway, options: ClusterTestOptions) -> int:
    folder = options.out or ROOT / ".local" / "cluster-test" / made.name

    def down() -> int:
        status = down_commands.down(DownOptions(env=made.name, yes=True))
        if status == 0:
            _remove_stack(made.name)
            made.forget()
        return status

    return ClusterTest(
        steps=(
            Step(
                "up", lambda: stack_commands.up(UpOptions(env=made.name, yes=True, promote_from=options.promote_from))
            ),
            Step("conformance", lambda: _conform(made.name, folder)),
        ),
        down=down,
        keeps_failed=options.keep_on_fail,
        kept=made.how_to_end(),
        say=print_line,
    ).run()


def _conform(environment: str, folder: Path) -> int:
    """Run the conformance suite, and write its results to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return run_conformance(
        environment, "--junit", str(folder / "conformance.xml"), "--html", str(folder / "conformance.html")
    )


def _price(estimate: CostEstimate, hours: float) -> str:
    idle, full = (usd * hours for usd in (estimate.idle_usd_per_hour, estimate.full_usd_per_hour))
    missing = f"; without a price: {', '.join(estimate.unresolved)}" if estimate.unresolved else ""
    return f"{idle:.2f} to {full:.2f} US dollars for {hours:g} h{missing}"


def _check_price(estimate: CostEstimate, hours: float, *, at_most: float) -> None:
    if estimate.full_usd_per_hour * hours > at_most:
        raise RefusedError(
            f"the test may cost {_price(estimate, hours)}, and MAX_USD is {at_most:g}",
            remedy="set a smaller TTL, or a larger MAX_USD",
        )


def _make_stack(name: str) -> None:
    """Make the stack in the backend that pulumi is logged in to.

    Raises:
        RefusedError: pulumi cannot make it; carries its message.
    """
    from pulumi.automation import CommandError, create_stack

    try:
        create_stack(name, work_dir=str(ROOT))
    except CommandError as error:
        raise RefusedError(
            f"pulumi cannot make stack {name}: {_last_line(error)}",
            remedy="`pulumi login`, e.g. to the bucket of `make state-bucket`",
        ) from error


def _remove_stack(name: str) -> None:
    """Delete the empty stack from the backend; one that is not empty stays."""
    from pulumi.automation import CommandError, LocalWorkspace

    try:
        LocalWorkspace(work_dir=str(ROOT), env_vars=dict(os.environ)).remove_stack(name)
    except CommandError as error:
        print_line(f"note: stack {name} is down and stays in the backend: {_last_line(error)}")


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("error:", "stderr: error:"))]
    return (told or lines)[-1].removeprefix("stderr: ")
