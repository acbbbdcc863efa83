"""Find GPU capacity for an environment, or show the calendar of what it has reserved."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

import boto3

from infra.kube.api import KubernetesApi
from infra.kube.stack_connection import connect
from infra.lifecycle.access.running import StackCluster
from infra.lifecycle.account.aws import Clients
from infra.lifecycle.account.caller import caller_of
from infra.lifecycle.capacity import document, report, timeline
from infra.lifecycle.capacity.calendar import Calendar, calendar_of
from infra.lifecycle.capacity.cluster_jobs import cluster_jobs
from infra.lifecycle.capacity.finder import find, place_of
from infra.lifecycle.capacity.need import make_need, parse_start
from infra.lifecycle.capacity.offers import NotKnown
from infra.lifecycle.capacity.placing import Job
from infra.lifecycle.capacity.sources.reservations import reservations
from infra.lifecycle.capacity.windows import windows_of
from infra.lifecycle.options import CapacityOptions
from infra.lifecycle.show import print_line, print_table
from infra.spec.catalog import load_catalog
from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.output import writing
from infra.spec.outputs import StackOutputs
from infra.spec.section import nearest, read_document
from infra.spec.settings import StackSettings, check_account, load_environment
from infra.spec.settings.loading import ENVIRONMENTS
from infra.spec.stack_outputs import given_outputs

_PICTURES = (".svg", ".html", ".png", ".pdf")


def capacity(options: CapacityOptions) -> int:
    """Print the ways to get nodes, or the calendar if no number of nodes is given."""
    settings = load_environment(options.env)
    now = datetime.now(UTC)
    if options.for_ is None:
        _check_calendar(options)
        _show_calendar(settings, options, now)
    else:
        _show_offers(settings, options, options.for_, now)
    return 0


def _check_calendar(options: CapacityOptions) -> None:
    """Refuse options of the finder, without which nothing is looked for."""
    given = [name for name in ("group", "from_", "region") if getattr(options, name)]
    if given:
        names = ", ".join(f"--{name.rstrip('_')}" for name in given)
        raise SettingsError(f"{names}: without --for nothing is looked for", remedy="name the number of nodes: FOR=8")
    if options.out is not None and options.out.suffix not in _PICTURES:
        raise SettingsError(
            f"{options.out}: the format must be {', '.join(_PICTURES[:-1])} or {_PICTURES[-1]}",
            remedy="name a file that ends so",
        )


def _show_offers(settings: StackSettings, options: CapacityOptions, nodes: int, now: datetime) -> None:
    if options.out is not None:
        raise SettingsError("--out draws the calendar", remedy="leave out --for, or use --json for a program")
    catalog, place = load_catalog(), place_of(settings, now=now)
    regions = tuple(dict.fromkeys(options.region)) or (settings.aws.region,)
    for region in regions:
        if region not in catalog.regions():
            raise SettingsError(f"region={region!r}: unknown region", remedy=nearest(region, catalog.regions()))
    need = make_need(
        settings,
        catalog,
        group=options.group,
        nodes=nodes,
        hours=options.hours,
        starts=parse_start(options.from_, now=now),
    )
    file = ENVIRONMENTS / f"{options.env}.yaml"
    findings = find(_aws(settings), need, regions, catalog=catalog, place=place)
    found = report.ways(findings, read_document(file).value, file=file.name, place=place)
    if options.json:
        print_line(json.dumps(document.findings_document(findings, found, environment=options.env), indent=2))
        return
    print_line(report.headline(need, environment=options.env, regions=regions))
    for line in report.warnings(need):
        print_line(line)
    if found:
        print_table(report.offer_table(found))
    for line in (
        *report.note_lines(found),
        *report.absent_lines(findings),
        *report.instructions(found, need, file=file.name),
    ):
        print_line(line)


def _show_calendar(settings: StackSettings, options: CapacityOptions, now: datetime) -> None:
    # First: a file that is wrong or missing is wrong input, whatever AWS says.
    given = given_outputs(options.env, file=options.outputs, environment=os.environ)
    region, catalog = settings.aws.region, load_catalog()
    reserved = reservations(_aws(settings), region, catalog)
    if isinstance(reserved, NotKnown):
        raise RefusedError(f"the reservations of {region} are {reserved}", remedy="grant these credentials this action")
    windows = windows_of(settings.gpu_groups, reserved, region=region, catalog=catalog)
    jobs, unknown = _jobs(settings, given)
    calendar = calendar_of(windows, jobs, now=now, jobs_unknown=unknown)
    if options.out is not None:
        # Imported here because the table needs no matplotlib.
        from infra.lifecycle.capacity.picture import write_picture

        with writing(options.out):
            write_picture(calendar, options.out, environment=options.env)
    if options.json:
        print_line(json.dumps(document.calendar_document(calendar, environment=options.env), indent=2))
        return
    _print_calendar(calendar, options)


def _print_calendar(calendar: Calendar, options: CapacityOptions) -> None:
    if calendar.windows:
        print_table(timeline.window_table(calendar))
        for line in timeline.time_line(calendar):
            print_line(line)
    else:
        print_line(
            f"{options.env} has no reservation and no Capacity Block; make capacity ENV={options.env} FOR=8 looks for one"
        )
    for line in timeline.findings(calendar):
        print_line(line)
    if options.out is not None:
        print_line(f"{options.out}: written")


def _aws(settings: StackSettings) -> Clients:
    """The account of the credentials, which has to be the environment's: reservations and quotas belong to accounts."""
    session = boto3.Session(region_name=settings.aws.region)
    caller = caller_of(session)
    check_account(settings, caller.account)
    return Clients(session, account=caller.account)


def _jobs(settings: StackSettings, given: StackOutputs | None) -> tuple[tuple[Job, ...], str]:
    """The cluster's jobs; or none, and why they are not known."""
    try:
        api = _cluster(settings, given)
        if api is None:
            return (), f"{settings.environment.name} has no cluster"
        return cluster_jobs(api), ""
    except PlatformError as error:
        return (), str(error.args[0])


def _cluster(settings: StackSettings, given: StackOutputs | None) -> KubernetesApi | None:
    if given is not None:
        return connect(given, kubeconfig=None, environment=os.environ)
    return StackCluster(settings).api()
