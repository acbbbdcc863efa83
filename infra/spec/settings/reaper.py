"""The reaper: a schedule that removes expired test clusters of the account."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from infra.spec.catalog import Catalog
from infra.spec.matching import Matching
from infra.spec.protection import EnvironmentKind
from infra.spec.section import Section, Violation, nearest
from infra.spec.settings.environment import EnvironmentSettings

Cron = Annotated[
    str,
    Matching(r"^\S+( \S+){4}$", "must be a schedule of five fields in UTC, as of cron, e.g. 23 * * * *"),
]


class ReaperSettings(Section):
    """A CronJob that runs `make reap`."""

    schedule: Cron = Field("23 * * * *", description="When it runs: five fields as of cron, in UTC.")
    regions: tuple[str, ...] = Field((), description="Regions to look in; default: aws.region.")


def reaper_violations(
    found: ReaperSettings | None, environment: EnvironmentSettings, catalog: Catalog
) -> Iterator[Violation]:
    """The rules that the section breaks, if there is one."""
    if found is None:
        return
    if environment.kind is EnvironmentKind.PROD:
        rule = "may delete what a test cluster has left in its account, so it belongs in no account of production"
        yield Violation(
            "reaper", found.schedule, rule, "set it in an environment of kind dev in the account of test clusters"
        )
    if environment.kind is EnvironmentKind.TEST:
        rule = "would be removed with its own test cluster"
        yield Violation("reaper", found.schedule, rule, "set it in an environment that stays")
    known = catalog.regions()
    for index, region in enumerate(found.regions):
        if region not in known:
            yield Violation(f"reaper.regions.{index}", region, "unknown region", nearest(region, known))
