"""Look up versions, digests and prices, and write them into the repository's files."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from infra.kube.aws_errors import aws_refusal
from infra.lifecycle import prices as price_list
from infra.lifecycle.options import PricesOptions, ReleaseLockOptions
from infra.lifecycle.release import lock
from infra.lifecycle.release import survey as surveys
from infra.lifecycle.release.aws_versions import AwsSource
from infra.lifecycle.release.newer_versions import Offer, changes_of, offers
from infra.lifecycle.release.registries import Registries, ecr_login
from infra.lifecycle.release.survey import Report, Status
from infra.lifecycle.release.web_sources import Pip, Web
from infra.lifecycle.show import print_line, print_table
from infra.spec.catalog import CATALOG_FILE, load_catalog
from infra.spec.release import RELEASE_FILE, ReleaseManifest, load_release
from infra.spec.release_rules import read_project

INCOMPLETE = 1
"""Exit status if any value was not found."""


def release_lock(options: ReleaseLockOptions) -> int:
    """Look up every entry of the release; write what was unresolved and, on request, what is newer.

    Fails if a value remains unresolved, or a source does not have what the release pins.
    """
    release, sources = load_release(), _sources(options)
    # Without a terminal no bar shows that the sources are being asked.
    print_line(f"looking up {surveys.entries(release, sources)} entries of the release at their sources")
    resolution = lock.resolve(release, sources)
    reports = _surveyed(release, sources, resolution)
    made = offers(release, reports, project=read_project())
    _print_reports(reports, made)
    upgrades = changes_of(made) if options.upgrade else ()
    if not options.dry_run:
        upgraded = {change.path for change in upgrades}
        found = (one for one in resolution.resolved if one.path not in upgraded)
        values = lock.Resolution((*upgrades, *found), resolution.open)
        confirmed = [report.entry for report in reports if report.status is Status.CONFIRMED]
        lock.write(values, RELEASE_FILE, today=datetime.now(UTC).date(), confirmed=confirmed)
    shown = {report.detail for report in reports}
    for still in (one for one in resolution.open if one.reason not in shown):
        print_line(f"  {'.'.join(still.path)}: unresolved: {still.reason}")
    print_line(f"{len(resolution.resolved)} resolved, {len(resolution.open)} unresolved")
    _print_upgrades(made, is_written=options.upgrade and not options.dry_run)
    wrong = [report for report in reports if report.status in {Status.NOT_FOUND, Status.CHANGED}]
    return INCOMPLETE if resolution.open or wrong else 0


def prices(options: PricesOptions) -> int:
    """Update the price table; fails if a price is not found."""
    try:
        found = price_list.look_up(load_catalog(), boto3.Session(region_name=price_list.API_REGION).client("pricing"))
    except (BotoCoreError, ClientError) as error:
        raise aws_refusal(
            "AWS Price List",
            error,
            remedy="sign in, e.g. `aws sso login`, with a role that may call pricing:GetProducts",
        ) from error
    if not options.dry_run:
        price_list.write(found, CATALOG_FILE, today=datetime.now(UTC).date())
    for quote in (*found.instances, *found.services, *found.databases):
        answer = f"unresolved: {quote.reason}" if isinstance(quote, price_list.Missing) else f"{quote.usd:g}"
        print_line(f"  {quote.name}: {answer}")
    return INCOMPLETE if found.missing else 0


def _sources(options: ReleaseLockOptions) -> lock.Sources:
    session = boto3.Session(region_name=options.region)
    registries = Registries(login=ecr_login(lambda region: session.client("ecr", region_name=region)))
    aws = AwsSource(ssm=session.client("ssm"), eks=session.client("eks"))
    return lock.Sources(
        charts=registries, images=registries, node_images=aws, addons=aws, clusters=aws, packages=Pip(), files=Web()
    )


def _surveyed(release: ReleaseManifest, sources: lock.Sources, resolution: lock.Resolution) -> tuple[Report, ...]:
    """The reports of all entries, with progress on standard error."""
    columns = (TextColumn("release"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=surveys.entries(release, sources))
        reports = surveys.survey(
            release, sources, done=lambda report: progress.update(task, advance=1, description=report.name)
        )
    return surveys.with_resolution(reports, resolution)


def _print_reports(reports: Iterable[Report], made: Iterable[Offer]) -> None:
    table = Table(title="versions of the release", title_justify="left")
    for column in ("entry", "version", "found", "newer", "source, reason, or what holds the newer version back"):
        table.add_column(column, overflow="fold")
    held = {offer.report.entry: "; ".join(offer.held_back) for offer in made}
    for report in reports:
        newer = report.newer.version if report.newer else "?" if report.note else ""
        texts = (report.detail, held.get(report.entry, ""), f"newer: {report.note}" if report.note else "")
        table.add_row(report.name, report.current, report.status.value, newer, "\n".join(filter(None, texts)))
    print_table(table)


def _print_upgrades(made: Iterable[Offer], *, is_written: bool) -> None:
    allowed = [offer for offer in made if not offer.held_back]
    if not allowed:
        return
    names = ", ".join(f"{offer.report.name} {offer.newer.version}" for offer in allowed)
    if is_written:
        print_line(f"upgraded: {names}; run `make test`: recorded chart defaults may differ")
    else:
        print_line(f"newer versions that the rules allow: {names}; `make release-lock UPGRADE=1` writes them")
