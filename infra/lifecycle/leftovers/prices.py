"""What a resource costs, from the catalogue's price table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from infra.lifecycle.leftovers.found import Found
from infra.lifecycle.leftovers.inventory import KINDS
from infra.spec.catalog import Catalog


def usd_per_hour(found: Found, catalog: Catalog) -> float | None:
    """US dollars per hour, without traffic and requests; None if the table has no price of it, or none in its region."""
    usd = KINDS[found.kind].price(found, catalog)
    return usd if usd == 0 or found.region == catalog.prices.region else None


class Bill(NamedTuple):
    """What several resources cost together.

    Attributes:
        usd_per_hour: US dollars per hour of those with a price.
        unpriced: how many have no price.
    """

    usd_per_hour: float
    unpriced: int

    @classmethod
    def of(cls, found: Iterable[Found], catalog: Catalog) -> Bill:
        """The bill of some resources."""
        prices = [usd_per_hour(one, catalog) for one in found]
        return cls(sum(price for price in prices if price is not None), prices.count(None))

    def __str__(self) -> str:
        more = f" and {self.unpriced} without a price" if self.unpriced else ""
        return f"${self.usd_per_hour:.2f} an hour{more}"
