"""Hourly cost of an environment by item, idle and at full size, from the catalogue's price table.

An item without a price, or in a region without prices, is listed as unresolved and excluded from the sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from infra.spec.capacity import CapacityBlock, LaunchRequest, Reservation, Spot
from infra.spec.catalog import Catalog, Price
from infra.spec.node_group import resolve_node_groups
from infra.spec.settings.nodes import BASELINE_THROUGHPUT_MIB
from infra.spec.settings.stack import StackSettings

HOURS_PER_MONTH = 730
"""Hours per month in the AWS Pricing Calculator: 365 days x 24 hours / 12."""

NOT_COUNTED = (
    "S3, EFS and ECR storage",
    "traffic through NAT gateways, endpoints and between zones",
    "storage of logs, and logs other than the control plane's and the network's",
    "KMS keys and requests",
    "the load balancer of single sign-on, which its controller makes",
    "Capacity Blocks, which are prepaid",
    "an existing VPC, and the control plane of an existing cluster",
)
"""Costs outside the estimate: prepaid, or billed by use."""


_CONTROL_PLANE_LOG_GB = 0.05
_CONTROL_PLANE_LOG_GB_PER_NODE = 0.005
_FLOW_LOG_GB_PER_NODE = 0.01
"""GB of logs an hour: assumptions, because traffic and API requests decide. Flow logs: 14,000 records of 120 bytes in each ten
minutes. Control plane: the audit log of a quiet cluster, and of the kubelet and the daemons of each node."""


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
        self._groups = resolve_node_groups(settings, catalog=catalog)
        self._is_priced = settings.aws.region == catalog.prices.region

    def lines(self) -> Iterator[CostItem]:
        """Every item, most asked-for first."""
        has_cluster, has_vpc = self._settings.cluster.existing is None, self._settings.network.existing is None
        if has_cluster:
            yield from self._control_plane()
        yield from self._node_groups()
        yield from self._volumes()
        yield from self._lustre()
        yield from self._database()
        if has_vpc:
            yield from self._network()
        if has_cluster:
            yield self._control_plane_logs()
        if has_vpc:
            yield self._flow_logs()

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
        system, heads, *_ = self._settings.launch_requests()
        yield self._group(system, smallest=self._settings.system_nodes.min_size)
        yield self._group(heads, smallest=self._settings.head_nodes.min_size)
        for group in self._settings.gpu_groups:
            if not isinstance(group.capacity, CapacityBlock):
                yield self._group(group, smallest=group.min_size)

    def _group(self, request: LaunchRequest, *, smallest: int) -> CostItem:
        instances, source = [*map(self._catalog.find_instance, request.instance_types)], self._catalog.prices.instances
        known = [one.usd_per_hour for one in instances if one.usd_per_hour is not None]
        highest = max(known) if len(known) == len(instances) else None
        price = Price(usd=highest, as_of=source.as_of, source=source.source)
        name = f"nodes {request.name}, {' to '.join(dict.fromkeys((instances[0].name, instances[-1].name)))}"
        match request.capacity:
            case Spot():
                note = "upper bound: spot is billed at or below the on-demand price"
                return self._line(name, smallest, price, full=request.max_size, note=note)
            case Reservation():
                return self._line(name, request.max_size, price, note="billed whether used or not")
            case _:
                return self._line(name, smallest, price, full=request.max_size)

    def _volumes(self) -> Iterator[CostItem]:
        groups, month = self._groups.all(), 1 / HOURS_PER_MONTH
        idle = sum(group.min_size * group.disk_gib for group in groups)
        full = sum(group.max_size * group.disk_gib for group in groups)
        yield self._line("node volumes, GiB", idle, self._services.gp3_gib_month, full=full, share=month)
        extra = [(one, (one.disk_throughput_mib - BASELINE_THROUGHPUT_MIB) / 1024) for one in groups]
        idle_gib, full_gib = (sum(getattr(one, size) * gib for one, gib in extra) for size in ("min_size", "max_size"))
        price = self._services.gp3_throughput_gibps_month
        yield self._line("throughput of node volumes, GiB/s", idle_gib, price, full=full_gib, share=month)
        prometheus = self._settings.monitoring.storage_gib
        yield self._line("Prometheus volume, GiB", prometheus, self._services.gp3_gib_month, share=month)

    def _lustre(self) -> Iterator[CostItem]:
        lustre = self._settings.storage.lustre
        if lustre is not None:
            price, name = self._catalog.prices.lustre[lustre.tier], f"FSx for Lustre, {lustre.tier}, GiB"
            yield self._line(name, lustre.size_gib, price, share=1 / HOURS_PER_MONTH)

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

    def _control_plane_logs(self) -> CostItem:
        base, each = _CONTROL_PLANE_LOG_GB, _CONTROL_PLANE_LOG_GB_PER_NODE
        note = f"assumes {base:g} GB an hour and {each:g} GB for each node"
        return self._log_line("control-plane logs, GB", base, each, note)

    def _flow_logs(self) -> CostItem:
        note = f"assumes {_FLOW_LOG_GB_PER_NODE:g} GB an hour for each node"
        return self._log_line("VPC flow logs, GB", 0, _FLOW_LOG_GB_PER_NODE, note)

    def _log_line(self, name: str, base: float, each: float, note: str) -> CostItem:
        """Logs that are `base` GB an hour, and `each` more for every node."""
        nodes = [sum(getattr(one, size) for one in self._groups.all()) for size in ("min_size", "max_size")]
        idle, full = (base + each * count for count in nodes)
        return self._line(name, idle, self._services.log_ingestion_gb, full=full, note=note)


def estimate_cost(settings: StackSettings, *, catalog: Catalog) -> CostEstimate:
    """Hourly cost of an environment by item.

    Raises:
        SettingsError: an instance type is not in the catalogue.
    """
    return CostEstimate(settings.aws.region, tuple(_Estimator(settings, catalog).lines()))
