"""Rules between `network.existing` or `cluster.existing` and other settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from infra.spec.release import ReleaseManifest
from infra.spec.section import Violation, nearest
from infra.spec.settings.cluster import LUSTRE_DRIVER, Driver, ExistingCluster
from infra.spec.settings.stack import StackSettings

_VPC = "network.existing"
_CLUSTER = "cluster.existing"


def existing_vpc_violations(settings: StackSettings) -> Iterator[Violation]:
    """The rules that `network.existing` breaks, if it is set."""
    found, sso = settings.network.existing, settings.single_sign_on
    if found is None:
        return
    cidrs = ", ".join(map(str, found.cidrs))
    for kind, subnets in (("private_subnets", found.private_subnets), ("public_subnets", found.public_subnets)):
        for zone, subnet in subnets.items():
            if not any(subnet.cidr.subnet_of(cidr) for cidr in found.cidrs):
                yield Violation(
                    f"{_VPC}.{kind}.{zone}.cidr", subnet.cidr, f"must lie in {_VPC}.cidrs, which is {cidrs}"
                )
    seen: dict[str, str] = {}
    for kind, subnets in (("private_subnets", found.private_subnets), ("public_subnets", found.public_subnets)):
        for zone, subnet in subnets.items():
            key = f"{_VPC}.{kind}.{zone}.id"
            first = seen.setdefault(subnet.id, key)
            if first != key:
                yield Violation(key, subnet.id, f"is also {first}; a subnet is in one zone, and private or public")
    if sso is not None and sso.internet_facing and not found.public_subnets:
        rule = "is required for single_sign_on.internet_facing: the proxy admits the load balancer's subnets only"
        yield Violation(f"{_VPC}.public_subnets", None, rule, "name the public subnet of each zone")


def existing_cluster_violations(settings: StackSettings, release: ReleaseManifest) -> Iterator[Violation]:
    """The rules that `cluster.existing` breaks, if it is set."""
    found = settings.cluster.existing
    if found is None:
        return
    if settings.network.existing is None:
        rule = "is required for cluster.existing: the nodes join the cluster in its VPC"
        yield Violation(_VPC, None, rule, "name the cluster's VPC and its private subnets")
    yield from _addons(found, release, has_lustre=settings.storage.lustre is not None)
    yield from _drivers(found)
    for index, role in enumerate(found.admins):
        if role not in settings.cluster.admin_roles:
            roles = ", ".join(settings.cluster.admin_roles)
            yield Violation(f"{_CLUSTER}.admins.{index}", role, f"must be one of cluster.admin_roles, which is {roles}")
    for index, cidr in enumerate(found.control_plane_cidrs):
        if not any(cidr.subnet_of(block) for block in settings.network.vpc_cidrs.values()):
            blocks = ", ".join(map(str, settings.network.vpc_cidrs.values()))
            yield Violation(f"{_CLUSTER}.control_plane_cidrs.{index}", cidr, f"must lie in the VPC, which is {blocks}")


def _addons(found: ExistingCluster, release: ReleaseManifest, *, has_lustre: bool) -> Iterator[Violation]:
    for index, name in enumerate(found.addons):
        key = f"{_CLUSTER}.addons.{index}"
        if name not in release.addons:
            yield Violation(key, name, "no add-on of the release", nearest(name, release.addons))
        elif name in found.addons[:index]:
            yield Violation(key, name, "is listed twice", "omit it here")
        elif name == LUSTRE_DRIVER and not has_lustre:
            yield Violation(key, name, "is used with storage.lustre only, which is not set", "omit it")


def _drivers(found: ExistingCluster) -> Iterator[Violation]:
    for driver in get_args(Driver):
        key, role = f"{_CLUSTER}.driver_roles.{driver}", found.driver_roles.get(driver)
        if role is None and driver not in found.addons:
            rule = "is required: the stack's key and file system admit no role that is not named"
            yield Violation(
                key, None, rule, f"name the role of the cluster's driver, or add {driver} to {_CLUSTER}.addons"
            )
        if role is not None and driver in found.addons:
            rule = (
                f"{driver} is in {_CLUSTER}.addons, and the stack gives the driver that it installs a role of its own"
            )
            yield Violation(key, role, rule, "omit one of them")
