"""What an existing EKS cluster must be for the platform: one function for each rule, over facts that are read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from packaging.version import Version

from infra.lifecycle.existing.cluster import FoundCluster
from infra.lifecycle.preflight.answer import Answer
from infra.spec.names import stack_tag
from infra.spec.release import AddOn, ReleaseManifest
from infra.spec.settings.addresses import control_plane_cidrs
from infra.spec.settings.loading import PROJECT
from infra.spec.settings.stack import StackSettings

_KEY = "cluster.existing"


class Judged(NamedTuple):
    """The input of every rule."""

    settings: StackSettings
    release: ReleaseManifest
    cluster: FoundCluster


def cluster_problems(
    settings: StackSettings, release: ReleaseManifest, cluster: FoundCluster | None
) -> Iterator[Answer]:
    """What keeps the platform off the cluster; nothing where the stack makes its own.

    Args:
        settings: the environment.
        release: the pinned versions.
        cluster: the cluster; None if it does not exist.
    """
    stated = settings.cluster.existing
    if stated is None:
        return
    if cluster is None:
        region = settings.aws.region
        yield (
            f"{_KEY}.name: the account has no cluster {stated.name} in {region}",
            "correct the name, the account or the region",
        )
        return
    for rule in _RULES:
        yield from rule(Judged(settings, release, cluster))


def needed_addons(settings: StackSettings, release: ReleaseManifest) -> tuple[str, ...]:
    """Add-ons that the cluster must have, because the stack does not install them."""
    return tuple(name for name in release.addons if settings.needs_addon(name) and not settings.installs_addon(name))


def _it_is_active(judged: Judged) -> Iterator[Answer]:
    cluster = judged.cluster
    if cluster.status != "ACTIVE":
        yield f"cluster {cluster.name} is {cluster.status}, not ACTIVE", "wait until EKS has created or updated it"


def _it_has_the_minor(judged: Judged) -> Iterator[Answer]:
    """Nodes, the autoscaler and the add-ons of the release are for one minor."""
    cluster, supported = judged.cluster, judged.release.kubernetes.supported
    wanted = judged.settings.cluster.kubernetes or judged.release.kubernetes.version
    if cluster.version == wanted:
        return
    if cluster.version in supported:
        remedy = f"set cluster.kubernetes: '{cluster.version}'"
    else:
        remedy = f"upgrade the cluster, or use a release that supports {cluster.version}; this one supports {', '.join(supported)}"
    yield f"cluster {cluster.name} has Kubernetes {cluster.version}, the environment {wanted}", remedy


def _it_takes_access_entries(judged: Judged) -> Iterator[Answer]:
    """The stack admits nodes, administrators and teams by access entries, never by the ConfigMap aws-auth."""
    cluster = judged.cluster
    if cluster.authentication not in {"API", "API_AND_CONFIG_MAP"}:
        yield (
            f"cluster {cluster.name} has authentication mode {cluster.authentication}, which knows no access entries",
            f"aws eks update-cluster-config --name {cluster.name} --access-config authenticationMode=API_AND_CONFIG_MAP",
        )


def _it_is_in_the_vpc(judged: Judged) -> Iterator[Answer]:
    stated, cluster = judged.settings.network.existing, judged.cluster
    if stated is not None and cluster.vpc_id != stated.vpc_id:
        yield (
            f"cluster {cluster.name} is in {cluster.vpc_id}, network.existing.vpc_id is {stated.vpc_id}",
            f"set network.existing.vpc_id: {cluster.vpc_id}, with subnets of that VPC",
        )


def _its_ranges_are_those_of_the_settings(judged: Judged) -> Iterator[Answer]:
    """Network policies admit the API server by these ranges."""
    settings, cluster = judged.settings, judged.cluster
    if cluster.ip_family != "ipv4":
        yield (
            f"cluster {cluster.name} has IP family {cluster.ip_family}; the platform supports ipv4",
            "use another cluster",
        )
    elif cluster.service_cidr != str(settings.network.service_cidr):
        yield (
            f"cluster {cluster.name} has services in {cluster.service_cidr}, the environment {settings.network.service_cidr}",
            f"set network.service_cidr: {cluster.service_cidr}",
        )
    given, found = set(control_plane_cidrs(settings)), cluster.subnet_cidrs
    if given != found:
        shown = ", ".join(sorted(found))
        yield (
            f"cluster {cluster.name} was made with the subnets {shown}, the environment has {', '.join(sorted(given))}",
            f"set {_KEY}.control_plane_cidrs: [{shown}]",
        )


def _its_nodes_share_a_security_group(judged: Judged) -> Iterator[Answer]:
    """Members of a group admit each other; without a common one the stack's pods would not reach CoreDNS on other nodes."""
    existing, cluster = judged.settings.cluster.existing, judged.cluster
    ours = {cluster.security_group_id, *(existing.node_security_groups if existing else ())}
    for groups in sorted(map(sorted, cluster.node_security_groups)):
        if not ours & set(groups):
            shown = ", ".join(groups)
            yield (
                f"cluster {cluster.name} has nodes with the security groups {shown}, and without {', '.join(sorted(ours))}",
                f"set {_KEY}.node_security_groups: [{shown}], or those of them that admit their members",
            )


def _the_named_groups_are_in_its_vpc(judged: Judged) -> Iterator[Answer]:
    """EC2 starts no node with a security group of another VPC, or with one twice."""
    existing, cluster = judged.settings.cluster.existing, judged.cluster
    for index, group in enumerate(existing.node_security_groups if existing else ()):
        key = f"{_KEY}.node_security_groups.{index}"
        if group == cluster.security_group_id:
            yield f"{key}: {group} is the security group of cluster {cluster.name}, which all nodes join", "omit it"
        elif group not in cluster.known_security_groups:
            yield f"{key}: {cluster.vpc_id} has no security group {group}", "correct the ID, or omit it"


def _its_security_group_lacks_the_stacks_rules(judged: Judged) -> Iterator[Answer]:
    """EC2 refuses a rule that a security group has already."""
    cluster, clients = judged.cluster, judged.settings.cluster
    stated = [("client_cidrs", str(cidr), str(cidr)) for cidr in clients.client_cidrs]
    # A group of another account is ACCOUNT/sg-….
    stated += [("client_security_groups", one, one.rpartition("/")[2]) for one in clients.client_security_groups]
    for key, value, source in stated:
        if source in cluster.admitted:
            yield (
                f"{cluster.security_group_id} of cluster {cluster.name} admits {value} to port 443 already",
                f"omit {value} from cluster.{key}",
            )


def _its_endpoint_is_private_too(judged: Judged) -> Iterator[Answer]:
    if not judged.cluster.has_private_endpoint:
        name = judged.cluster.name
        yield (
            f"cluster {name} has no private endpoint: the stack's nodes would reach it over the internet, if at all",
            f"aws eks update-cluster-config --name {name} --resources-vpc-config endpointPrivateAccess=true",
        )


def _its_addons_fit_the_release(judged: Judged) -> Iterator[Answer]:
    """EKS add-ons; those that are no EKS add-on are looked for on the cluster itself, see `conflicts`."""
    settings, release, cluster = judged
    ours = stack_tag(settings)
    for name in settings.cluster.existing.addons if settings.cluster.existing else ():
        found = cluster.addons.get(name)
        if found is not None and found.stack != ours:
            yield (
                f"cluster {cluster.name} has add-on {name} {found.version}, which {_KEY}.addons would replace",
                f"omit {name} from {_KEY}.addons",
            )
    for name in needed_addons(settings, release):
        found = cluster.addons.get(name)
        if found is not None:
            if found.status not in {"ACTIVE", "UPDATING"}:
                yield f"add-on {name} of cluster {cluster.name} is {found.status}", "repair it: aws eks describe-addon"
            yield from _version_problems(name, found.version, release.addons[name], cluster)


def _version_problems(name: str, version: str, pinned: AddOn, cluster: FoundCluster) -> Iterator[Answer]:
    """Problems with a version: below the release's minimum, or of another minor than the control plane."""
    found = Version(version.removeprefix("v").partition("-")[0])
    remedy = f"update it: aws eks update-addon --cluster-name {cluster.name} --addon-name {name}"
    if pinned.minimum is not None and found < Version(pinned.minimum):
        yield (
            f"add-on {name} of cluster {cluster.name} is {version}, the release needs {pinned.minimum} or newer",
            remedy,
        )
    if pinned.is_kubernetes_version and f"{found.major}.{found.minor}" != cluster.version:
        yield f"add-on {name} of cluster {cluster.name} is {version}, Kubernetes {cluster.version}", remedy


def _its_drivers_have_the_roles(judged: Judged) -> Iterator[Answer]:
    """The stack's key and file system admit the roles of the settings, and no other."""
    cluster = judged.cluster
    for driver, role in judged.settings.cluster.foreign_drivers.items():
        found = cluster.driver_roles[driver]
        if driver in cluster.addons and role not in found:
            shown = ", ".join(sorted(found)) or "no role"
            yield (
                f"{driver} of cluster {cluster.name} has {shown}; {_KEY}.driver_roles says {role}",
                f"set {_KEY}.driver_roles.{driver} to the role of its pods, or give them that role",
            )


def _it_has_room_for_access_entries(judged: Judged) -> Iterator[Answer]:
    """EKS keeps one entry per role: a second one fails, and one that is not the stack's is not changed."""
    settings, cluster = judged.settings, judged.cluster
    admins = settings.cluster.existing.admins if settings.cluster.existing else ()
    for role in sorted(cluster.foreign_entries - set(admins)):
        if role in settings.cluster.admin_roles and not any(role in team.roles for team in settings.teams):
            remedy = f"add it to {_KEY}.admins if it administers the cluster, or delete the entry"
        else:
            remedy = "delete the entry, and give the role the rights that it had by a role of its own"
        yield f"cluster {cluster.name} has an access entry for {role}, which the stack would make too", remedy
    for role in admins:
        if role not in cluster.foreign_entries:
            yield (
                f"cluster {cluster.name} has no access entry for {role}, which {_KEY}.admins names",
                f"omit it from {_KEY}.admins: the stack then makes one",
            )


def _it_has_room_for_pod_identities(judged: Judged) -> Iterator[Answer]:
    """EKS keeps one association per service account, and refuses a second one."""
    name = judged.cluster.name
    delete = f"aws eks delete-pod-identity-association --cluster-name {name} --association-id"
    for account, id_ in sorted(judged.cluster.foreign_associations.items()):
        yield (
            f"cluster {name} has a Pod Identity association for {account.namespace}/{account.name}, which the stack would make too",
            f"give the pods that use it another service account, then: {delete} {id_}",
        )


def _it_carries_one_stack(judged: Judged) -> Iterator[Answer]:
    """Namespaces, queues and operators have fixed names, so a cluster has room for one environment."""
    others = sorted(one for one in judged.cluster.stacks if one.startswith(f"{PROJECT}/"))
    for other in others:
        if other != stack_tag(judged.settings):
            yield (
                f"cluster {judged.cluster.name} has nodes of stack {other}",
                "one environment per cluster: use another cluster",
            )


_RULES: tuple[Callable[[Judged], Iterator[Answer]], ...] = (
    _it_is_active,
    _it_has_the_minor,
    _it_takes_access_entries,
    _it_is_in_the_vpc,
    _its_ranges_are_those_of_the_settings,
    _its_nodes_share_a_security_group,
    _the_named_groups_are_in_its_vpc,
    _its_security_group_lacks_the_stacks_rules,
    _its_endpoint_is_private_too,
    _its_addons_fit_the_release,
    _its_drivers_have_the_roles,
    _it_has_room_for_access_entries,
    _it_has_room_for_pod_identities,
    _it_carries_one_stack,
)
