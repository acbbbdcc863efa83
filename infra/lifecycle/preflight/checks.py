"""Checks before anything is created: account, quotas, instance offerings, reservations, expiry and release.

`pulumi up` fails on most of these only after twenty minutes, with half a cluster created.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from botocore.exceptions import ClientError

from infra.kube.aws_errors import aws_refusal
from infra.lifecycle.access.reach import obstacles
from infra.lifecycle.account.aws import AWS_ERRORS
from infra.lifecycle.account.instance_supply import offered_zones, read_quota, zone_ids
from infra.lifecycle.drift.cluster import being_deleted
from infra.lifecycle.existing.checks import (
    nothing_on_the_existing_cluster_conflicts,
    the_existing_cluster_fits_the_platform,
    the_existing_vpc_fits_the_platform,
    the_stack_stays_where_it_is,
)
from infra.lifecycle.existing.vpc_rules import vpc_notes
from infra.lifecycle.leftovers.guards import check_no_production
from infra.lifecycle.preflight.answer import Answer
from infra.lifecycle.preflight.case import Case, Check
from infra.lifecycle.preflight.crd_fields import lost_fields
from infra.lifecycle.preflight.database import the_database_can_have_its_major
from infra.lifecycle.preflight.single_sign_on import single_sign_on_notes
from infra.spec import release_rules
from infra.spec.capacity import CapacityBlock, Reservation, vcpus_by_quota, zones_of
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.manifest import Manifest
from infra.spec.settings import check_account, environment_names, load_environment
from platform_charts.charts.crds import CRD_GROUPS, check_crd_upgrades
from platform_charts.charts.installs import installed_charts

_WITHOUT_CONTROL_PLANES = frozenset({"use1-az3", "usw1-az2", "cac1-az3"})
"""IDs of zones in which no subnet of a cluster may be (EKS user guide, "Networking requirements for VPC and subnets")."""

_NAMED = 3
"""Objects that a message names."""


class Problem(NamedTuple):
    """A reason why the environment cannot be brought up.

    Attributes:
        check: name of the failed check, as a sentence.
        message: what is wrong, with names and values.
        remedy: how to fix it.
    """

    check: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.check}: {self.message}\n    remedy: {self.remedy}"


def the_environment_has_not_expired(case: Case) -> Iterator[Answer]:
    """A test cluster is not brought up after its expiry."""
    expires = case.settings.environment.expires
    if expires is not None and expires <= case.now:
        yield (
            f"expired at {expires.isoformat()}",
            "destroy it and make another with `python -m infra.lifecycle test-environment`, or move environment.expires",
        )


def capacity_blocks_have_not_ended(case: Case) -> Iterator[Answer]:
    """A Capacity Block still has time to run."""
    for group in case.settings.gpu_groups:
        capacity = group.capacity
        if isinstance(capacity, CapacityBlock) and capacity.ends <= case.now:
            yield f"group {group.name}: {capacity.id} ended at {capacity.ends.isoformat()}", "buy a new block"


def the_release_may_be_deployed(case: Case) -> Iterator[Answer]:
    """The versions of the release fit together; in prod all are resolved, but for our images, which `up` pushes itself."""
    kind = case.settings.environment.kind
    try:
        release_rules.check_release(case.release, kind=kind, project=case.project, needs_our_images=False)
    except RefusedError as error:
        yield str(error.args[0]), error.remedy


def the_caller_is_an_administrator(case: Case) -> Iterator[Answer]:
    """The caller's role is one of cluster.admin_roles: it installs the platform on the cluster."""
    if not case.caller.is_one_of(case.settings.cluster.admin_roles):
        roles = ", ".join(case.settings.cluster.admin_roles)
        yield (
            f"the credentials are {case.caller.arn}; cluster.admin_roles is {roles}",
            "assume one of these roles (set AWS_PROFILE), or add the caller's role to cluster.admin_roles",
        )


def the_api_server_can_be_reached(case: Case) -> Iterator[Answer]:
    """This machine reaches the API server, now or once it exists: directly or through a tunnel."""
    existing = case.existing_cluster
    endpoint = (existing.endpoint or None) if existing else case.account.endpoint
    yield from obstacles(case.settings, endpoint, case.probe)


def the_reaper_works_in_no_account_of_production(case: Case) -> Iterator[Answer]:
    """Beside the stack's reaper there is no production environment, whose resources without tags it could delete."""
    if case.settings.reaper is None:
        return
    try:
        check_no_production(case.caller.account, [load_environment(name) for name in environment_names()])
    except RefusedError as error:
        yield str(error.args[0]), "remove `reaper` from the settings, or keep test clusters in an account of their own"


def quotas_suffice(case: Case) -> Iterator[Answer]:
    """The vCPU quotas cover every node group at max_size; other usage of the account is not counted."""
    client = case.session.client("service-quotas")
    for code, needed in vcpus_by_quota(case.settings.launch_requests(), catalog=case.catalog).items():
        quota = read_quota(client, code)
        if quota["Value"] < needed:
            message = f"{quota['QuotaName']} ({code}) is {quota['Value']:g} vCPUs, the groups at max_size need {needed}"
            yield message, f"request {needed} or more in Service Quotas, or lower max_size"


def the_zones_take_a_control_plane(case: Case) -> Iterator[Answer]:
    """The account has every zone of the network, and EKS can place the control plane's interfaces there."""
    ids, zones = zone_ids(case.session.client("ec2")), case.settings.network.availability_zones
    possible = ", ".join(name for name, id_ in sorted(ids.items()) if id_ not in _WITHOUT_CONTROL_PLANES)
    for zone in zones:
        if zone not in ids:
            what = f"the account has no zone {zone} in {case.settings.aws.region}"
        elif case.settings.cluster.existing is None and ids[zone] in _WITHOUT_CONTROL_PLANES:
            what = f"EKS makes no control plane in {zone}, which is zone {ids[zone]} in this account"
        else:
            continue
        yield what, f"set network.availability_zones to zones of {possible}"


def instances_are_offered_in_their_zones(case: Case) -> Iterator[Answer]:
    """Every zone of a group offers its instance type: a region may offer a type in some zones only."""
    requests = [(request, name) for request in case.settings.launch_requests() for name in request.instance_types]
    offered = offered_zones(case.session.client("ec2"), {name for _, name in requests})
    for request, name in requests:
        wanted = zones_of(request, case.settings.network.availability_zones)
        missing = sorted(set(wanted) - offered.get(name, frozenset()))
        if missing:
            where = ", ".join(sorted(offered.get(name, ()))) or "no zone of the region"
            yield (
                f"group {request.name}: {name} is not offered in {', '.join(missing)}",
                f"set availability_zones of the group; the type is offered to this account in {where}",
            )


def reservations_match_the_settings(case: Case) -> Iterator[Answer]:
    """A reservation or Capacity Block has the group's instance type and zone, is active, and holds max_size instances."""
    client = case.session.client("ec2")
    for group in case.settings.gpu_groups:
        capacity = group.capacity
        if not isinstance(capacity, (Reservation, CapacityBlock)):
            continue
        (found,) = client.describe_capacity_reservations(CapacityReservationIds=[capacity.id])["CapacityReservations"]
        wanted: Mapping[str, object] = {
            "InstanceType": group.instance_type,
            "AvailabilityZone": capacity.availability_zone,
            "State": "active",
        }
        for field, value in wanted.items():
            if found[field] != value:
                remedy = f"set group {group.name} to the {field} of {capacity.id}, or name another reservation"
                yield f"group {group.name}: {capacity.id} has {field} {found[field]}, the group needs {value}", remedy
        if found["TotalInstanceCount"] < group.max_size:
            holds = f"{capacity.id} holds {found['TotalInstanceCount']} instances, max_size is {group.max_size}"
            yield f"group {group.name}: {holds}", "lower max_size: a targeted launch beyond the reservation fails"


def the_linked_bucket_is_in_the_region(case: Case) -> Iterator[Answer]:
    """FSx for Lustre follows the changes of a bucket of its own region only (FSx for Lustre user guide, "Linking your file system")."""
    lustre, region = case.settings.storage.lustre, case.settings.aws.region
    if lustre is None:
        return
    what = f"bucket {lustre.bucket} of storage.lustre.source"
    try:
        found = case.session.client("s3").head_bucket(Bucket=lustre.bucket)["BucketRegion"]
    except ClientError as error:
        remedy = "create the bucket, or let these credentials list it"
        yield f"S3 answers {error.response['Error']['Code']} to a request for {what}", remedy
        return
    if found != region:
        yield f"{what} is in {found}, the stack in {region}", f"copy the data to a bucket of {region}"


def crds_can_be_upgraded(case: Case) -> Iterator[Answer]:
    """No CRD of the running cluster loses versions or objects in the upgrade."""
    live = case.crds_of_cluster
    if live is None:
        return
    for pinned in crds_of_release(case):
        try:
            check_crd_upgrades(live, [pinned])
        except RefusedError as error:
            yield str(error.args[0]), error.remedy


def no_object_loses_a_field(case: Case) -> Iterator[Answer]:
    """The release's CRDs have every field that an object in the cluster sets."""
    live, api = case.crds_of_cluster, case.api
    if live is None or api is None:
        return
    for lost in lost_fields(api, live, crds_of_release(case)):
        named, others = ", ".join(lost.objects[:_NAMED]), len(lost.objects) - _NAMED
        yield (
            f"CRD {lost.crd} of the release lacks {lost.path}, which is set by {named}{f' and {others} more' * (others > 0)}",
            "wait until these jobs have ended, or remove the field from these objects; they would lose it",
        )


def crds_of_release(case: Case) -> tuple[Manifest, ...]:
    """The CRDs that the stack applies."""
    installed = installed_charts(case.settings)
    groups = [group for chart, group in CRD_GROUPS.items() if chart in installed]
    return tuple(one for group in groups for one in case.crds.crds(group))


CHECKS: tuple[Check, ...] = (
    the_environment_has_not_expired,
    the_caller_is_an_administrator,
    capacity_blocks_have_not_ended,
    the_release_may_be_deployed,
    the_api_server_can_be_reached,
    the_stack_stays_where_it_is,
    the_existing_vpc_fits_the_platform,
    the_existing_cluster_fits_the_platform,
    nothing_on_the_existing_cluster_conflicts,
    the_reaper_works_in_no_account_of_production,
    quotas_suffice,
    the_zones_take_a_control_plane,
    instances_are_offered_in_their_zones,
    reservations_match_the_settings,
    the_linked_bucket_is_in_the_region,
    the_database_can_have_its_major,
    crds_can_be_upgraded,
    no_object_loses_a_field,
)


OF_CRDS: tuple[Check, ...] = (crds_can_be_upgraded, no_object_loses_a_field)
"""The checks of the release's CRDs, which do not matter where they are not applied."""


def problems(case: Case, checks: Sequence[Check] = CHECKS) -> tuple[Problem, ...]:
    """Every problem, in the order of the checks.

    A check that gets no answer from AWS or the cluster is a problem too.

    Raises:
        RefusedError: aws.allowed_accounts does not list the credentials' account; no check has run.
    """
    check_account(case.settings, case.caller.account)
    found: list[Problem] = []
    for check in checks:
        name = check.__name__.replace("_", " ")
        try:
            found += [Problem(name, *answer) for answer in check(case)]
        except AWS_ERRORS as error:
            refusal = aws_refusal("no answer", error, remedy="grant these credentials this read permission")
            found.append(Problem(name, str(refusal.args[0]), refusal.remedy))
        except PlatformError as error:
            found.append(Problem(name, str(error.args[0]), error.remedy))
    return tuple(found)


def notes(case: Case) -> Iterator[str]:
    """Notices that do not stop a deployment."""
    monitoring = case.settings.monitoring
    if monitoring.alert_email is None and monitoring.webhook_secret is None:
        yield "alerts have no recipient: monitoring.alert_email and monitoring.webhook_secret are null"
    lustre, zones = case.settings.storage.lustre, case.settings.network.availability_zones
    if lustre is not None:
        here = {lustre.availability_zone}
        far = [group.name for group in case.settings.gpu_groups if set(zones_of(group, zones)) - here]
        if far:
            yield (
                f"storage.lustre is in {lustre.availability_zone}: jobs of {', '.join(far)} may run in other zones, where its "
                "reads are slower and billed as traffic"
            )
    yield from vpc_notes(case.settings, case.existing_vpc)
    yield from single_sign_on_notes(case.settings, case.cluster.api())
    if (api := case.cluster.api()) is not None:
        yield from map(str, being_deleted(api, case.state or {}))
    if case.crds_of_cluster is None:
        yield "no cluster yet: its CRDs will be created, not upgraded"


def check(case: Case) -> None:
    """Refuse an environment that cannot be brought up.

    Raises:
        RefusedError: lists every problem with its remedy.
    """
    found = problems(case)
    if found:
        lines = "".join(f"\n  {problem}" for problem in found)
        raise RefusedError(f"preflight of {case.settings.environment.name}: {len(found)} problem(s){lines}")
