"""Report cost, the state of the release, and a stack's outputs."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.table import Table

from infra.lifecycle.options import EnvironmentOptions, OutputsOptions, ReleaseCheckOptions, StalenessOptions
from infra.lifecycle.show import print_line, print_table
from infra.spec import outputs as contract
from infra.spec import release_rules
from infra.spec.catalog import load_catalog
from infra.spec.cost import HOURS_PER_MONTH, NOT_COUNTED, CostEstimate, estimate_cost
from infra.spec.protection import EnvironmentKind
from infra.spec.release import load_release, staleness
from infra.spec.settings import load_environment
from infra.spec.stack_outputs import outputs_in_file, outputs_of_stack


def cost(options: EnvironmentOptions) -> int:
    """Print the hourly cost of an environment."""
    _print_cost(estimate_cost(load_environment(options.env), catalog=load_catalog()))
    return 0


def outputs(options: OutputsOptions) -> int:
    """Check a stack's outputs against their contract and this release, or record them from the program."""
    if options.recorded:
        return _record_outputs(options)
    environment, file = load_environment(options.env).environment.name, options.file
    found = outputs_in_file(file) if file else outputs_of_stack(environment)
    stack = contract.read_outputs(found, file=str(file or f"outputs of {environment}"))
    contract.check_outputs(stack, load_release(), catalog=load_catalog())
    _print_outputs(stack)
    return 0


def release_check(options: ReleaseCheckOptions) -> int:
    """Check that the versions of the release fit together, and that the given environment may deploy it."""
    release, project = load_release(), release_rules.read_project()
    kind = load_environment(options.env).environment.kind if options.env else EnvironmentKind.DEV
    release_rules.check_release(release, kind=kind, project=project)
    print_line(f"release {release.platform} is consistent; {len(release.unresolved())} unresolved, which prod refuses")
    for name in release.unresolved():
        print_line(f"  {name}")
    return 0


def stale(options: StalenessOptions) -> int:
    """Print the release entries not checked against their source recently."""
    entries = staleness(load_release(), today=datetime.now(UTC).date(), limit_days=options.days)
    print_line(f"{len(entries)} entries not checked against their source for {options.days} days")
    for one in entries:
        print_line(f"  {one.entry}: {'never' if one.days is None else f'{one.days} days ago'}")
    return 0


def _print_cost(cost: CostEstimate) -> None:
    """Print each item's hourly cost, idle and at full size, with the date of its price."""
    table = Table(title=f"US dollars per hour in {cost.region}", title_justify="left")
    table.add_column("item")
    for column in ("idle", "full", "USD/unit/h", "USD/h idle", "USD/h full"):
        table.add_column(column, justify="right")
    table.add_column("price of")
    table.add_column("note")
    for item in cost.items:
        unit = item.usd_per_unit_hour
        amounts = (
            ["unresolved", "", ""]
            if unit is None
            else [f"{unit:.5f}", *(f"{n * unit:.2f}" for n in (item.idle, item.full))]
        )
        day = item.as_of.isoformat() if item.as_of else ""
        table.add_row(item.name, f"{item.idle:g}", f"{item.full:g}", *amounts, day, item.note)
    table.add_section()
    table.add_row(
        "sum of the known" if cost.unresolved else "sum",
        "",
        "",
        "",
        f"{cost.idle_usd_per_hour:.2f}",
        f"{cost.full_usd_per_hour:.2f}",
        "",
        "",
    )
    print_table(table)
    monthly = cost.idle_usd_per_hour * HOURS_PER_MONTH
    at_least = "at least " if cost.unresolved else ""
    print_line(f"idle: {at_least}{monthly:,.0f} US dollars per month")
    print_line(f"not counted: {'; '.join(NOT_COUNTED)}")
    if cost.unresolved:
        print_line(f"unresolved prices: {', '.join(cost.unresolved)} (`make prices` looks them up)")


def _record_outputs(options: OutputsOptions) -> int:
    """Write or print what the program would export."""
    # Imported here because the other commands of this module need no Pulumi.
    from infra.lifecycle.stack.outputs_file import recorded_outputs, write_recorded_outputs

    outputs = recorded_outputs(load_environment(options.env))
    if options.file is None:
        print_line(outputs.model_dump_json(indent=2))
        return 0
    write_recorded_outputs(outputs, options.file)
    print_line(f"{options.file}: outputs that {options.env} would export, with made-up ids")
    print_line(f"  make job ENV={options.env} TEAM={outputs.teams[0].name} OUTPUTS={options.file}")
    return 0


def _print_outputs(outputs: contract.StackOutputs) -> None:
    """Print the stack's cluster, teams and GPU groups."""
    table = Table(title=f"stack {outputs.environment}, platform {outputs.platform}", title_justify="left")
    for column in ("GPU group", "instance", "GPUs", "EFA", "nodes", "capacity"):
        table.add_column(column)
    for group in outputs.gpu_groups:
        shape = (str(group.gpus_per_node), str(group.efa_per_node), f"0-{group.max_nodes}")
        table.add_row(group.name, group.instance_type, *shape, group.capacity_type)
    print_line(f"cluster {outputs.cluster.name}, Kubernetes {outputs.cluster.kubernetes}, {outputs.region}")
    print_line(f"teams: {', '.join(team.name for team in outputs.teams)}")
    print_table(table)
