"""Rules across settings, or between settings and catalogue: one function each, listed at the end.

No rule depends on the time: settings with an expired test cluster or an ended Capacity Block must still load for destroy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from infra.spec.capacity import CapacityBlock, Reservation, zones_of
from infra.spec.catalog import Catalog
from infra.spec.cluster_names import PLATFORM_NAMESPACES
from infra.spec.launch_rules import launch_violations
from infra.spec.monitoring_size import free_memory_gib, prometheus_memory_gib
from infra.spec.node_labels import HEAD_GROUP, SYSTEM_GROUP
from infra.spec.protection import EnvironmentKind, protection_of
from infra.spec.release import ReleaseManifest
from infra.spec.section import Violation, did_you_mean, nearest
from infra.spec.settings.addresses import SHARED_ADDRESSES, node_addresses
from infra.spec.settings.existing_rules import existing_cluster_violations, existing_vpc_violations
from infra.spec.settings.network import RESERVED_ADDRESSES, NetworkSettings, addresses_per_node, subnets_of
from infra.spec.settings.reaper import reaper_violations
from infra.spec.settings.single_sign_on_rules import single_sign_on_violations
from infra.spec.settings.stack import StackSettings
from infra.spec.sharing import devices_per_gpu

_SERVICE_BLOCKS = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
_RESERVED_NAMES = ("default", HEAD_GROUP, SYSTEM_GROUP)


@dataclass(frozen=True)
class Context:
    """The input of every rule."""

    settings: StackSettings
    catalog: Catalog
    release: ReleaseManifest


Rule = Callable[[Context], Iterator[Violation]]


_PARTITIONS = {"us-gov-": "aws-us-gov (GovCloud)", "cn-": "aws-cn (China)"}
"""Other partitions of AWS by the prefix of their regions; ARNs and endpoints have other forms there."""


def _the_region_is_known(context: Context) -> Iterator[Violation]:
    region, known = context.settings.aws.region, context.catalog.regions()
    partition = next((one for prefix, one in _PARTITIONS.items() if region.startswith(prefix)), None)
    if partition is not None:
        yield Violation(
            "aws.region", region, f"of the partition {partition}; only regions of the partition aws are supported"
        )
    elif region not in known:
        yield Violation("aws.region", region, "unknown region", nearest(region, known))


def _zones_belong_to_the_region(context: Context) -> Iterator[Violation]:
    region, zones = context.settings.aws.region, context.settings.network.availability_zones
    for zone in zones:
        if zone[:-1] != region:
            yield Violation("network.availability_zones", zone, f"not a zone of aws.region = {region}")
    if len(set(zones)) < len(zones):
        yield Violation("network.availability_zones", ", ".join(zones), "must list each zone once")


def _ranges_have_a_legal_size(context: Context) -> Iterator[Violation]:
    network = context.settings.network
    if network.cidr is not None and not 16 <= network.cidr.prefixlen <= 22:
        yield Violation("network.cidr", network.cidr, "must be /16 to /22", f"e.g. {network.cidr.network_address}/16")
    if not 12 <= network.service_cidr.prefixlen <= 24:
        yield Violation("network.service_cidr", network.service_cidr, "must be /12 to /24, as EKS demands")
    if not any(network.service_cidr.subnet_of(block) for block in _SERVICE_BLOCKS):
        blocks = ", ".join(map(str, _SERVICE_BLOCKS))
        yield Violation("network.service_cidr", network.service_cidr, f"must lie in {blocks}, as EKS demands")


def _ranges_do_not_overlap(context: Context) -> Iterator[Violation]:
    network = context.settings.network
    peered = [(f"network.peered_cidrs.{index}", cidr) for index, cidr in enumerate(network.peered_cidrs)]
    ranges = [*network.vpc_cidrs.items(), ("network.service_cidr", network.service_cidr), *peered]
    for index, (key, cidr) in enumerate(ranges):
        for other_key, other in ranges[:index]:
            if cidr.overlaps(other) and not (
                key.startswith("network.peered") and other_key.startswith("network.peered")
            ):
                yield Violation(key, cidr, f"overlaps {other_key} = {other}")


def _subnets_hold_every_node(context: Context) -> Iterator[Violation]:
    network = context.settings.network
    if network.cidr is not None and not 16 <= network.cidr.prefixlen <= 22:
        return
    per_node, nodes = addresses_per_node(network.pods_per_node), node_addresses(context.settings)
    for zone, subnet in zip(network.availability_zones, subnets_of(network).private, strict=True):
        needed = nodes[zone] + SHARED_ADDRESSES + RESERVED_ADDRESSES
        if needed > subnet.num_addresses:
            key, value = _range_of_subnet(network, zone)
            yield Violation(
                key,
                value,
                f"too small: subnet {subnet} of {zone} has {subnet.num_addresses} addresses, the node groups at "
                f"max_size need {needed} ({per_node} per node at network.pods_per_node = {network.pods_per_node})",
                "set a larger range, fewer pods per node, or a lower max_size",
            )


def _range_of_subnet(network: NetworkSettings, zone: str) -> tuple[str, object]:
    """The setting that decides the size of a private subnet, and its value."""
    if network.existing is None:
        return "network.cidr", network.cidr
    return f"network.existing.private_subnets.{zone}.cidr", network.existing.private_subnets[zone].cidr


def _the_release_supports_the_minor(context: Context) -> Iterator[Violation]:
    minor, supported = context.settings.cluster.kubernetes, context.release.kubernetes.supported
    if minor is not None and minor not in supported:
        yield Violation(
            "cluster.kubernetes", minor, f"this release supports {', '.join(supported)}", "omit it for the default"
        )


def _the_endpoint_is_not_open_to_the_world(context: Context) -> Iterator[Violation]:
    for index, cidr in enumerate(context.settings.cluster.public_cidrs):
        if cidr.prefixlen < 8:
            yield Violation(
                f"cluster.public_cidrs.{index}", cidr, "opens the API server to the internet", "list office ranges only"
            )


def _clients_are_in_peered_networks(context: Context) -> Iterator[Violation]:
    peered = context.settings.network.peered_cidrs
    for index, cidr in enumerate(context.settings.cluster.client_cidrs):
        if not any(cidr.subnet_of(network) for network in peered):
            known = ", ".join(map(str, peered)) or "empty"
            yield Violation(
                f"cluster.client_cidrs.{index}",
                cidr,
                f"must lie in network.peered_cidrs, which is {known}",
                "add the connected network to network.peered_cidrs",
            )


def _group_names_are_unique(context: Context) -> Iterator[Violation]:
    names = Counter(group.name for group in context.settings.gpu_groups)
    for index, group in enumerate(context.settings.gpu_groups):
        if names[group.name] > 1 or group.name in _RESERVED_NAMES:
            reserved = ", ".join(_RESERVED_NAMES)
            yield Violation(f"gpu_groups.{index}.name", group.name, f"must be unique, and none of {reserved}")


def _the_capacity_order_lists_groups_once(context: Context) -> Iterator[Violation]:
    order, known = context.settings.capacity_order, [group.name for group in context.settings.gpu_groups]
    for index, name in enumerate(order):
        if name not in known:
            remedy = nearest(name, known) if known else "omit it"
            yield Violation(f"capacity_order.{index}", name, "no such GPU group", remedy)
        elif name in order[:index]:
            yield Violation(f"capacity_order.{index}", name, "is listed twice", "omit it here")


def _every_zone_has_a_system_node(context: Context) -> Iterator[Violation]:
    smallest, zones = context.settings.system_nodes.min_size, len(context.settings.network.availability_zones)
    if smallest < zones:
        yield Violation(
            "system_nodes.min_size",
            smallest,
            f"each of the {zones} zones of the network needs a node: a volume of Prometheus or Alertmanager can be used "
            "in its own zone only",
            f"set min_size: {zones}, or more",
        )


def _instances_are_offered(context: Context) -> Iterator[Violation]:
    settings, catalog = context.settings, context.catalog
    groups = [("system_nodes", settings.system_nodes.instance_type, False)]
    groups += [("head_nodes", settings.head_nodes.instance_type, False)]
    groups += [(f"gpu_groups.{i}", group.instance_type, True) for i, group in enumerate(settings.gpu_groups)]
    for prefix, name, wants_gpus in groups:
        fitting = [one.name for one in catalog.instances.values() if bool(one.gpus) == wants_gpus]
        key, what = f"{prefix}.instance_type", "with GPUs" if wants_gpus else "without GPUs"
        if name not in fitting:
            yield Violation(key, name, f"not an instance type {what} in the catalogue", nearest(name, fitting))
        elif settings.aws.region not in (regions := catalog.family_of(name).regions):
            yield Violation(key, name, f"not offered in {settings.aws.region}", f"offered in {', '.join(regions)}")


def _the_database_is_offered(context: Context) -> Iterator[Violation]:
    database, offered = context.settings.database, context.catalog.postgresql
    name, major = database.instance_class, database.engine_version
    if name not in offered.class_names:
        families = [family for one in offered.classes for family in one.families]
        remedy = did_you_mean(name, offered.class_names) or f"families: {', '.join(sorted(families))}"
        yield Violation("database.instance_class", name, "not a class of RDS for PostgreSQL in the catalogue", remedy)
    if major not in offered.majors:
        rule = "not a major version of PostgreSQL that RDS supports without a surcharge"
        yield Violation("database.engine_version", major, rule, f"one of {', '.join(offered.majors)}")


def _capacity_is_possible(context: Context) -> Iterator[Violation]:
    zones = context.settings.network.availability_zones
    for index, group in enumerate(context.settings.gpu_groups):
        prefix = f"gpu_groups.{index}"
        for zone in sorted(set(zones_of(group, zones)) - set(zones)):
            yield Violation(f"{prefix}.availability_zones", zone, f"must be a zone of the network: {', '.join(zones)}")
        if group.instance_type in context.catalog.instances:
            for broken in launch_violations(group, catalog=context.catalog, network_zones=zones):
                yield broken._replace(key=f"{prefix}.{broken.key}")


def _a_block_starts_without_nodes(context: Context) -> Iterator[Violation]:
    for index, group in enumerate(context.settings.gpu_groups):
        if isinstance(group.capacity, CapacityBlock):
            for key, size in (("min_size", group.min_size), ("desired_size", group.desired_size)):
                if size:
                    yield Violation(
                        f"gpu_groups.{index}.{key}",
                        size,
                        "a Capacity Block starts without nodes: the autoscaler adds them for jobs while the block lasts, and "
                        "EKS ends them before the block does",
                        f"set {key}: 0",
                    )


def _a_reservation_serves_one_group(context: Context) -> Iterator[Violation]:
    seen: dict[str, str] = {}
    for index, group in enumerate(context.settings.gpu_groups):
        if isinstance(group.capacity, (Reservation, CapacityBlock)):
            first = seen.setdefault(group.capacity.id, group.name)
            if first != group.name:
                key = f"gpu_groups.{index}.capacity.id"
                yield Violation(key, group.capacity.id, f"group {first} already uses this capacity")


def _sharing_fits_the_gpu(context: Context) -> Iterator[Violation]:
    for index, group in enumerate(context.settings.gpu_groups):
        instance = context.catalog.instances.get(group.instance_type)
        key, sharing = f"gpu_groups.{index}.sharing", group.sharing
        if instance and instance.gpu and sharing.mig_profile and not instance.gpu.mig:
            yield Violation(f"{key}.mig_profile", sharing.mig_profile, f"{instance.gpu.model} does not support MIG")
        if group.efa and (sharing.mig_profile or sharing.time_slices > 1):
            yield Violation(key, None, "GPU sharing is for development; it cannot be combined with efa: true")


def _topology_is_that_of_nodes_that_exist(context: Context) -> Iterator[Violation]:
    for index, group in enumerate(context.settings.gpu_groups):
        if group.topology == "none" or group.instance_type not in context.catalog.instances:
            continue
        key, zones = f"gpu_groups.{index}.topology", zones_of(group, context.settings.network.availability_zones)
        if not context.catalog.family_of(group.instance_type).network_layers:
            rule = f"EC2 reports no network layers for {group.instance_type}"
            yield Violation(key, group.topology, rule, "set topology: none")
        if group.min_size != group.max_size:
            yield Violation(
                key,
                group.topology,
                f"needs a group of fixed size, min_size = max_size, but they are {group.min_size} and {group.max_size}: Kueue "
                "counts only nodes that exist, and would admit no job that needs a new one",
                "set topology: none, or one size",
            )
        if len(zones) > 1:
            rule = f"needs one zone, as the workers of a job do; the group has {', '.join(zones)}"
            yield Violation(key, group.topology, rule, "set availability_zones to one of them")


def _lustre_is_in_a_zone_with_gpu_nodes(context: Context) -> Iterator[Violation]:
    lustre, zones = context.settings.storage.lustre, context.settings.network.availability_zones
    if lustre is None:
        return
    key, zone = "storage.lustre.availability_zone", lustre.availability_zone
    used = {one for group in context.settings.gpu_groups for one in zones_of(group, zones)}
    if zone not in zones:
        yield Violation(key, zone, f"must be a zone of the network: {', '.join(zones)}")
    elif used and zone not in used:
        yield Violation(key, zone, "no GPU group has nodes in this zone", f"use one of {', '.join(sorted(used))}")


def _lustre_of_a_protected_environment_is_persistent(context: Context) -> Iterator[Violation]:
    lustre, kind = context.settings.storage.lustre, context.settings.environment.kind
    if lustre is not None and lustre.tier == "scratch" and protection_of(kind).protect:
        rule = f"{kind} needs a persistent tier: scratch loses files with a file server, and has no key of the stack"
        yield Violation("storage.lustre.tier", lustre.tier, rule, "use persistent-125 or more")


def _team_quotas_fit_the_groups(context: Context) -> Iterator[Violation]:
    settings, names = context.settings, Counter(team.name for team in context.settings.teams)
    groups = {group.name: group for group in settings.gpu_groups}
    assigned: Counter[str] = Counter()
    for index, team in enumerate(settings.teams):
        is_taken = team.name in {*_RESERVED_NAMES, *PLATFORM_NAMESPACES} or team.name.startswith("kube-")
        if names[team.name] > 1 or is_taken:
            rule = "must be unique, and not a namespace of Kubernetes or the platform"
            yield Violation(f"teams.{index}.name", team.name, rule)
        for name, gpus in team.gpus.items():
            key = f"teams.{index}.gpus.{name}"
            assigned[name] += gpus
            group = groups.get(name)
            instance = context.catalog.instances.get(group.instance_type) if group else None
            if group is None:
                yield Violation(key, gpus, "no such GPU group", nearest(name, groups) if groups else "")
            elif instance and instance.gpu:
                total = group.max_size * instance.gpus * devices_per_gpu(group.sharing, instance.gpu)
                if assigned[name] > total:
                    yield Violation(key, gpus, f"the teams' quotas add up to {assigned[name]} GPUs, {name} has {total}")


def _prometheus_fits_a_system_node(context: Context) -> Iterator[Violation]:
    settings, catalog = context.settings, context.catalog
    instance, chosen = catalog.instances.get(settings.system_nodes.instance_type), settings.monitoring.memory_gib
    if instance is None:
        return
    needed, free = prometheus_memory_gib(settings.launch_requests(), catalog, chosen=chosen), free_memory_gib(instance)
    if needed > free:
        reason = "as set" if chosen else "for all node groups at max_size"
        yield Violation(
            "system_nodes.instance_type",
            instance.name,
            f"too small: it has {free} GiB for a pod, and Prometheus gets {needed} GiB, {reason}",
            "choose a larger type, or set monitoring.memory_gib",
        )


def _prod_is_highly_available(context: Context) -> Iterator[Violation]:
    settings = context.settings
    if settings.environment.kind is not EnvironmentKind.PROD:
        return
    if settings.cluster.public_cidrs:
        shown = ", ".join(map(str, settings.cluster.public_cidrs))
        remedy = "omit it; `make tunnel` and cluster.client_cidrs lead to the private one"
        yield Violation("cluster.public_cidrs", shown, "prod must not have a public endpoint", remedy)
    if settings.network.existing is None and settings.network.nat != "per_az":
        yield Violation("network.nat", settings.network.nat, "prod needs one NAT gateway per zone", "set nat: per_az")
    if len(settings.network.availability_zones) != 3:
        zones = ", ".join(settings.network.availability_zones)
        yield Violation("network.availability_zones", zones, "prod needs three zones")
    if not settings.database.multi_az:
        yield Violation("database.multi_az", "false", "prod's database needs a standby", "set multi_az: true")
    if settings.monitoring.alert_email is None and settings.monitoring.webhook_secret is None:
        yield Violation("monitoring", None, "prod needs an alert recipient", "set alert_email or webhook_secret")
    if settings.budget is None:
        yield Violation("budget", None, "is required in prod: monthly_usd and email")


def _a_test_cluster_expires(context: Context) -> Iterator[Violation]:
    environment, is_test = context.settings.environment, context.settings.environment.kind is EnvironmentKind.TEST
    if is_test and environment.expires is None:
        yield Violation("environment.expires", None, "is required for kind test", "e.g. 2030-01-31T18:00:00Z")
    if not is_test and environment.expires is not None:
        yield Violation("environment.expires", environment.expires, "only kind test expires", "omit it")
    if is_test and context.settings.budget is None:
        yield Violation("budget", None, "is required for kind test: monthly_usd and email")


def _loki_has_a_url_and_nothing_else_has(context: Context) -> Iterator[Violation]:
    logs = context.settings.logs
    if logs.destination == "loki" and logs.loki_url is None:
        yield Violation(
            "logs.loki_url", None, "is required for logs.destination = loki", "e.g. http://loki.example:3100"
        )
    if logs.destination != "loki" and logs.loki_url is not None:
        rule = f"logs.destination = {logs.destination} sends nothing to Loki"
        yield Violation("logs.loki_url", logs.loki_url, rule, "set destination: loki, or omit loki_url")


def _backups_live_no_longer_than_their_artifacts(context: Context) -> Iterator[Violation]:
    days, noncurrent = context.settings.mlflow.backup_keep_days, context.settings.storage.noncurrent_days
    if days is not None and days > noncurrent:
        rule = f"must be at most storage.noncurrent_days = {noncurrent}: older artifacts of a backup would be gone"
        yield Violation("mlflow.backup_keep_days", days, rule)


def _single_sign_on_fits_the_environment(context: Context) -> Iterator[Violation]:
    yield from single_sign_on_violations(context.settings)


def _the_reaper_works_beside_test_clusters(context: Context) -> Iterator[Violation]:
    yield from reaper_violations(context.settings.reaper, context.settings.environment, context.catalog)


def _an_existing_vpc_holds_its_subnets(context: Context) -> Iterator[Violation]:
    yield from existing_vpc_violations(context.settings)


def _an_existing_cluster_has_what_the_stack_does_not_install(context: Context) -> Iterator[Violation]:
    yield from existing_cluster_violations(context.settings, context.release)


RULES: tuple[Rule, ...] = (
    _the_region_is_known,
    _zones_belong_to_the_region,
    _ranges_have_a_legal_size,
    _ranges_do_not_overlap,
    _subnets_hold_every_node,
    _the_release_supports_the_minor,
    _the_endpoint_is_not_open_to_the_world,
    _clients_are_in_peered_networks,
    _group_names_are_unique,
    _the_capacity_order_lists_groups_once,
    _every_zone_has_a_system_node,
    _instances_are_offered,
    _the_database_is_offered,
    _capacity_is_possible,
    _a_block_starts_without_nodes,
    _a_reservation_serves_one_group,
    _sharing_fits_the_gpu,
    _topology_is_that_of_nodes_that_exist,
    _lustre_is_in_a_zone_with_gpu_nodes,
    _lustre_of_a_protected_environment_is_persistent,
    _team_quotas_fit_the_groups,
    _prometheus_fits_a_system_node,
    _prod_is_highly_available,
    _a_test_cluster_expires,
    _loki_has_a_url_and_nothing_else_has,
    _backups_live_no_longer_than_their_artifacts,
    _single_sign_on_fits_the_environment,
    _the_reaper_works_beside_test_clusters,
    _an_existing_vpc_holds_its_subnets,
    _an_existing_cluster_has_what_the_stack_does_not_install,
)


def violations_of(context: Context) -> list[Violation]:
    """Every rule that the settings break, in the order of `RULES`."""
    return [violation for rule in RULES for violation in rule(context)]
