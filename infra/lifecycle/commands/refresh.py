"""Look up versions, digests and prices, and write them into the repository's files."""

from __future__ import annotations

from datetime import UTC, datetime

import boto3

from infra.lifecycle import prices as price_list
from infra.lifecycle import release_lock as lock
from infra.lifecycle.options import PricesOptions, ReleaseLockOptions
from infra.lifecycle.registries import AwsSource, Registries, ecr_login
from infra.lifecycle.show import print_line
from infra.spec.catalog import CATALOG_FILE, load_catalog
from infra.spec.release import RELEASE_FILE, load_release

INCOMPLETE = 1
"""Exit status if any value was not found."""


def release_lock(options: ReleaseLockOptions) -> int:
    """Look up and write the release's unresolved values; fails if any remain."""
    session = boto3.Session(region_name=options.region)
    registries = Registries(login=ecr_login(lambda region: session.client("ecr", region_name=region)))
    aws = AwsSource(ssm=session.client("ssm"), eks=session.client("eks"))
    sources = lock.Sources(charts=registries, images=registries, node_images=aws, addons=aws)
    resolution = lock.resolve(load_release(), sources)
    if not options.dry_run:
        lock.write(resolution, RELEASE_FILE, today=datetime.now(UTC).date())
    for found in resolution.resolved:
        print_line(f"  {'.'.join(found.path)}: {found.value} ({found.source})")
    for still in resolution.open:
        print_line(f"  {'.'.join(still.path)}: unresolved: {still.reason}")
    print_line(f"{len(resolution.resolved)} resolved, {len(resolution.open)} unresolved")
    return INCOMPLETE if resolution.open else 0


def prices(options: PricesOptions) -> int:
    """Update the price table; fails if a price is not found."""
    found = price_list.look_up(load_catalog(), boto3.client("pricing", region_name=price_list.API_REGION))
    if not options.dry_run:
        price_list.write(found, CATALOG_FILE, today=datetime.now(UTC).date())
    for quote in (*found.instances, *found.services, *found.databases):
        answer = f"unresolved: {quote.reason}" if isinstance(quote, price_list.Missing) else f"{quote.usd:g}"
        print_line(f"  {quote.name}: {answer}")
    return INCOMPLETE if found.missing else 0
