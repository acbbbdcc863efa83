"""Hourly cost of an environment by item, idle and at full size, from the catalogue's price table.

An item without a price, or in a region without prices, is listed as unresolved and excluded from the sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from infra.spec.capacity import CapacityBlock, LaunchRequest, Reservation, Spot
from infra.spec.catalog import Catalog, Price
from infra.spec.settings.nodes import GpuGroup, SystemNodes
from infra.spec.settings.stack import StackSettings

HOURS_PER_MONTH = 730
"""Hours per month in the AWS Pricing Calculator: 365 days x 24 hours / 12."""

NOT_COUNTED = (
    "S3, EFS and ECR storage",
    "traffic through NAT gateways, endpoints and between zones",
    "CloudWatch log ingestion",
    "KMS keys and requests",
    "Capacity Blocks, which are prepaid",
)
"""Costs outside the estimate: prepaid, or billed by use."""


@dataclass(frozen=True, kw_only=True)
class CostItem:
    """One line of the estimate.

    Attributes:
        name: name of the item.
        idle: units running while no job runs.
        full: units running with every group at max_size.
        usd_per_unit_hour: US dollars per unit and hour; None if the price is unresolved.
        as_of: date of the price, or None.
        note: what the price assumes; empty if it is exact.
    """

    name: str
    idle: float
    full: float
    usd_per_unit_hour: float | None
    as_of: date | None
    note: str = ""


@dataclass(frozen=True)
class CostEstimate:
    """The items, and the sum of those with a price, in US dollars per hour."""

    region: str
    items: tuple[CostItem, ...]

    @property
    def idle_usd_per_hour(self) -> float:
        """Cost while no job runs."""
        return sum(item.idle * item.usd_per_unit_hour for item in self.items if item.usd_per_unit_hour is not None)

    @property
    def full_usd_per_hour(self) -> float:
        """Cost with every group at max_size."""
        return sum(item.full * item.usd_per_unit_hour for item in self.items if item.usd_per_unit_hour is not None)

    @property
    def unresolved(self) -> tuple[str, ...]:
        """Names of the items without a price."""
        return tuple(item.name for item in self.items if item.usd_per_unit_hour is None)


class _Estimator:
    """Produces the items of one environment."""

    def __init__(self, settings: StackSettings, catalog: Catalog) -> None:
        self._settings = settings
        self._catalog = catalog
        self._services = catalog.prices.services
        self._is_priced = settings.aws.region == catalog.prices.region

    def lines(self) -> Iterator[CostItem]:
        """Every item, most asked-for first."""
        yield from self._control_plane()
        yield from self._node_groups()
        yield from self._volumes()
        yield from self._database()
        yield from self._network()

    def _line(
        self, name: str, units: float, price: Price, *, full: float | None = None, share: float = 1, note: str = ""
    ) -> CostItem:
        """One item: `units` idle, `full` at full size (default: as idle); an hour costs `share` of the price."""
        usd = price.usd if self._is_priced else None
        return CostItem(
            name=name,
            idle=units,
            full=units if full is None else full,
            usd_per_unit_hour=usd * share if usd is not None else None,
            as_of=price.as_of if usd is not None else None,
            note=note,
        )

    def _control_plane(self) -> Iterator[CostItem]:
        if self._settings.cluster.support == "standard":
            yield self._line("EKS control plane", 1, self._services.eks_cluster_hour)
        else:
            note = "upper bound: the surcharge starts when the minor leaves standard support"
            yield self._line("EKS control plane", 1, self._services.eks_extended_support_hour, note=note)

    def _node_groups(self) -> Iterator[CostItem]:
        system = self._settings.system_nodes
        yield self._group(self._settings.launch_requests()[0], smallest=system.min_size)
        for group in self._settings.gpu_groups:
            if not isinstance(group.capacity, CapacityBlock):
                yield self._group(group, smallest=group.min_size)

    def _group(self, request: LaunchRequest, *, smallest: int) -> CostItem:
        instance, source = self._catalog.find_instance(request.instance_type), self._catalog.prices.instances
        price = Price(usd=instance.usd_per_hour, as_of=source.as_of, source=source.source)
        name = f"nodes {request.name}, {instance.name}"
        match request.capacity:
            case Spot():
                note = "upper bound: spot is billed at or below the on-demand price"
                return self._line(name, smallest, price, full=request.max_size, note=note)
            case Reservation():
                return self._line(name, request.max_size, price, note="billed whether used or not")
            case _:
                return self._line(name, smallest, price, full=request.max_size)

    def _volumes(self) -> Iterator[CostItem]:
        groups: tuple[SystemNodes | GpuGroup, ...] = (self._settings.system_nodes, *self._settings.gpu_groups)
        idle = sum(group.min_size * group.disk_gib for group in groups)
        full = sum(group.max_size * group.disk_gib for group in groups)
        month = 1 / HOURS_PER_MONTH
        yield self._line("node volumes, GiB", idle, self._services.gp3_gib_month, full=full, share=month)
        prometheus = self._settings.monitoring.storage_gib
        yield self._line("Prometheus volume, GiB", prometheus, self._services.gp3_gib_month, share=month)

    def _database(self) -> Iterator[CostItem]:
        database = self._settings.database
        copies = 2 if database.multi_az else 1
        price = self._catalog.prices.databases.get(database.instance_class, Price(usd=None))
        yield self._line(f"database, {database.instance_class}", copies, price)
        gib, largest = copies * database.allocated_gib, copies * database.max_allocated_gib
        month = 1 / HOURS_PER_MONTH
        yield self._line("database storage, GiB", gib, self._services.rds_gp3_gib_month, full=largest, share=month)

    def _network(self) -> Iterator[CostItem]:
        network = self._settings.network
        zones = len(network.availability_zones)
        gateways = zones if network.nat == "per_az" else 1
        yield self._line("NAT gateways", gateways, self._services.nat_gateway_hour)
        yield self._line("public IPv4 addresses", gateways, self._services.public_ipv4_hour)
        endpoints = zones * len(network.interface_endpoints)
        yield self._line("interface endpoints, per zone", endpoints, self._services.interface_endpoint_az_hour)


def estimate_cost(settings: StackSettings, *, catalog: Catalog) -> CostEstimate:
    """Hourly cost of an environment by item.

    Raises:
        SettingsError: an instance type is not in the catalogue.
    """
    return CostEstimate(settings.aws.region, tuple(_Estimator(settings, catalog).lines()))
