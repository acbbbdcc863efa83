"""Checks before anything is created: account, quotas, instance offerings, reservations, expiry and release.

`pulumi up` fails on most of these only after twenty minutes, with half a cluster created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from infra.lifecycle.aws import Client, Session
from infra.lifecycle.caller import Caller, caller_of
from infra.lifecycle.reach import Probe, obstacles
from infra.lifecycle.running import RunningCluster
from infra.lifecycle.single_sign_on import single_sign_on_notes
from infra.lifecycle.stage import AccountState, read_account
from infra.spec import release_rules
from infra.spec.capacity import CapacityBlock, Reservation, vcpus_by_quota, zones_of
from infra.spec.catalog import Catalog
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.release import ReleaseManifest
from infra.spec.settings import StackSettings, check_account
from platform_charts.charts.crds import CRD_GROUPS, CrdSource, check_crd_upgrades
from platform_charts.charts.installs import installed_charts


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


@dataclass(frozen=True, kw_only=True)
class Case:
    """The input of every check; what AWS says about caller and account is read once, as no check changes it.

    Attributes:
        settings: the environment.
        catalog: the instance catalogue.
        release: the release manifest.
        project: versions in the project's own files.
        session: boto3 session in the environment's region.
        now: the time, with its zone.
        cluster: the running cluster, if any.
        crds: the CRDs of this release.
        probe: what this machine reaches.
    """

    settings: StackSettings
    catalog: Catalog
    release: ReleaseManifest
    project: release_rules.Project
    session: Session
    now: datetime
    cluster: RunningCluster
    crds: CrdSource
    probe: Probe

    @cached_property
    def caller(self) -> Caller:
        """Who the session's credentials belong to.

        Raises:
            RefusedError: there are no valid credentials.
        """
        return caller_of(self.session)

    @cached_property
    def account(self) -> AccountState:
        """What the account has of the environment.

        Raises:
            RefusedError: AWS does not answer, or refuses these credentials.
        """
        return read_account(self.settings, self.release, self.session)


Answer = tuple[str, str]
Check = Callable[[Case], Iterator[Answer]]


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
    yield from obstacles(case.settings, case.account.endpoint, case.probe)


def quotas_suffice(case: Case) -> Iterator[Answer]:
    """The vCPU quotas cover every node group at max_size; other usage of the account is not counted."""
    client = case.session.client("service-quotas")
    for code, needed in vcpus_by_quota(case.settings.launch_requests(), catalog=case.catalog).items():
        quota = _quota(client, code)
        if quota["Value"] < needed:
            message = f"{quota['QuotaName']} ({code}) is {quota['Value']:g} vCPUs, the groups at max_size need {needed}"
            yield message, f"request {needed} or more in Service Quotas, or lower max_size"


def instances_are_offered_in_their_zones(case: Case) -> Iterator[Answer]:
    """Every zone of a group offers its instance type: a region may offer a type in some zones only."""
    requests = [(request, name) for request in case.settings.launch_requests() for name in request.instance_types]
    offered = _offers(case.session.client("ec2"), {name for _, name in requests})
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
    """No CRD of the running cluster loses versions, objects or fields in the upgrade."""
    live = case.cluster.crds()
    if live is None:
        return
    installed = installed_charts(case.settings)
    groups = [group for chart, group in CRD_GROUPS.items() if chart in installed]
    for pinned in (one for group in groups for one in case.crds.crds(group)):
        try:
            check_crd_upgrades(live, [pinned])
        except RefusedError as error:
            yield str(error.args[0]), error.remedy


CHECKS: tuple[Check, ...] = (
    the_environment_has_not_expired,
    the_caller_is_an_administrator,
    capacity_blocks_have_not_ended,
    the_release_may_be_deployed,
    the_api_server_can_be_reached,
    quotas_suffice,
    instances_are_offered_in_their_zones,
    reservations_match_the_settings,
    the_linked_bucket_is_in_the_region,
    crds_can_be_upgraded,
)


def problems(case: Case) -> tuple[Problem, ...]:
    """Every problem, in the order of `CHECKS`.

    A check that gets no answer from AWS or the cluster is a problem too.

    Raises:
        RefusedError: aws.allowed_accounts does not list the credentials' account; no check has run.
    """
    check_account(case.settings, case.caller.account)
    found: list[Problem] = []
    for check in CHECKS:
        name = check.__name__.replace("_", " ")
        try:
            found += [Problem(name, *answer) for answer in check(case)]
        except (BotoCoreError, ClientError) as error:
            found.append(Problem(name, str(error), "grant these credentials this read permission"))
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
    yield from single_sign_on_notes(case.settings, case.cluster.api())
    if case.cluster.crds() is None:
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


def _quota(client: Client, code: str) -> Mapping[str, Any]:
    """The account's quota; AWS's default if the account has no applied value."""
    try:
        quota: Mapping[str, Any] = client.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
    except client.exceptions.NoSuchResourceException:
        quota = client.get_aws_default_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
    return quota


def _offers(client: Client, types: set[str]) -> dict[str, frozenset[str]]:
    """Zones that offer each instance type."""
    pages = client.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": sorted(types)}]
    )
    pairs = [(one["InstanceType"], one["Location"]) for page in pages for one in page["InstanceTypeOfferings"]]
    return {name: frozenset(zone for other, zone in pairs if other == name) for name, _ in pairs}
