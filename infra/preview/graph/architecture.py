"""The architecture of a recording, for the picture: zones, node groups, stores, identities, and the cluster's contents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from operator import itemgetter

from infra.preview.graph import connections
from infra.preview.graph.connections import Edge
from infra.preview.graph.contents import Contents, contents_of
from infra.preview.recorded_outputs import physical_id
from infra.preview.recording import Recording, Resource
from infra.spec.catalog import Catalog
from infra.spec.settings.network import subnets_of
from infra.spec.settings.stack import StackSettings

_SUBNET = "aws:ec2/subnet:Subnet"
_NAT = "aws:ec2/natGateway:NatGateway"
_ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
_CLUSTER = "aws:eks/cluster:Cluster"
_ADDON = "aws:eks/addon:Addon"
_NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
_BUCKET = "aws:s3/bucket:Bucket"
_FILE_SYSTEM = "aws:efs/fileSystem:FileSystem"
_LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
_LINK = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
_MOUNT_TARGET = "aws:efs/mountTarget:MountTarget"
_DATABASE = "aws:rds/instance:Instance"
_REPOSITORY = "aws:ecr/repository:Repository"
_POD_IDENTITY = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
_VERSIONING = "aws:s3/bucketVersioning:BucketVersioning"
_EFS_BACKUP = "aws:efs/backupPolicy:BackupPolicy"
_KEY = "aws:kms/key:Key"
_TOPIC = "aws:sns/topic:Topic"
_LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"
_INGRESS = "kubernetes:networking.k8s.io/v1:Ingress"
_ALB = "alb.ingress.kubernetes.io"


@dataclass(frozen=True)
class Zone:
    """An availability zone: ranges of its subnets, and whether it has a NAT gateway of the stack and a mount target.

    `public_cidr` is empty in an existing VPC, whose public subnets are not the stack's.
    """

    name: str
    private_cidr: str
    public_cidr: str
    has_nat: bool
    has_mount_target: bool


@dataclass(frozen=True)
class Group:
    """A node group.

    Attributes:
        name: name of the group.
        zones: indices of its zones.
        instance: description of the instance type.
        machines: description of sizes and capacity.
        fabric: description of EFA and placement; empty without either.
        has_gpus: whether a node has GPUs.
    """

    name: str
    zones: tuple[int, ...]
    instance: str
    machines: str
    fabric: str
    has_gpus: bool


@dataclass(frozen=True)
class Store:
    """A resource that pods use: service, name, description, whether Pulumi protects it, and its URN."""

    service: str
    name: str
    facts: str
    is_protected: bool
    urn: str


@dataclass(frozen=True)
class Workload:
    """A role, and the service accounts that may assume it, as namespace/name."""

    role: str
    accounts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """All that the picture shows.

    Attributes:
        services: topics and log groups that the cluster uses, and load balancers that lead to it.
        contents: what runs on the cluster.
        paths: which namespaces reach each other.
        callers: the programs that take these paths, by namespace, where not every pod may.
        uses: which namespaces use which stores and services, and which a load balancer leads to.
    """

    cluster: str
    vpc: str
    control_plane: str
    addons: tuple[str, ...]
    zones: tuple[Zone, ...]
    endpoints: tuple[str, ...]
    groups: tuple[Group, ...]
    stores: tuple[Store, ...]
    workloads: tuple[Workload, ...]
    keys: tuple[str, ...]
    services: tuple[Store, ...]
    contents: Contents
    paths: frozenset[Edge]
    callers: Mapping[str, str]
    uses: frozenset[Edge]


def architecture_of(settings: StackSettings, recording: Recording, catalog: Catalog) -> Architecture:
    """The architecture of an environment, from its recording."""
    subnets = _zones_of_subnets(settings, recording)
    zones = tuple(_zones(settings, recording, subnets))
    order = {zone.name: index for index, zone in enumerate(zones)}
    ranges = ", ".join(map(str, settings.network.vpc_cidrs.values()))
    existing = settings.network.existing
    stores, services = tuple(_stores(recording)), tuple(_services(recording))
    drawn = {one.urn for one in (*stores, *services)}
    paths = connections.between_namespaces(recording)
    uses = connections.to_aws(recording, drawn) | connections.from_load_balancers(recording)
    used = connections.ends(uses)
    return Architecture(
        cluster=recording.outputs["cluster"]["name"],
        vpc=f"VPC {ranges}" if existing is None else f"Existing VPC {existing.vpc_id}, {ranges}",
        control_plane=_control_plane(recording),
        addons=tuple(sorted(one.properties["addonName"] for one in recording.of_type(_ADDON))),
        zones=zones,
        endpoints=tuple(sorted(one.name for one in recording.of_type(_ENDPOINT))),
        groups=tuple(_groups(recording, catalog, subnets, order)),
        stores=stores,
        workloads=tuple(_workloads(recording)),
        keys=tuple(sorted(one.name for one in recording.of_type(_KEY))),
        services=tuple(one for one in services if one.urn in used),
        contents=contents_of(recording, named=connections.ends(paths) | used - drawn),
        paths=paths,
        callers=connections.callers(recording),
        uses=uses,
    )


def _control_plane(recording: Recording) -> str:
    """The control plane in a line; of an existing one only what the stack knows."""
    minor = recording.outputs["cluster"]["kubernetes"]
    for cluster in recording.of_type(_CLUSTER):
        endpoint = "public and private" if cluster.properties["vpcConfig"]["endpointPublicAccess"] else "private only"
        encrypted = "; secrets encrypted with a key of the stack" if cluster.properties.get("encryptionConfig") else ""
        return f"Kubernetes {minor}, endpoint {endpoint}{encrypted}"
    return f"Kubernetes {minor}, an existing cluster, which the stack does not change"


def _zones_of_subnets(settings: StackSettings, recording: Recording) -> dict[str, str]:
    """Zone of each subnet by its ID."""
    existing = settings.network.existing
    if existing is not None:
        return {subnet.id: zone for zone, subnet in existing.private_subnets.items()}
    made = recording.of_type(_SUBNET)
    return {physical_id(one.type, one.name, one.properties): one.properties["availabilityZone"] for one in made}


def _zones(settings: StackSettings, recording: Recording, subnets: dict[str, str]) -> Iterator[Zone]:
    with_nat = {subnets[one.properties["subnetId"]] for one in recording.of_type(_NAT)}
    with_mount = {subnets[one.properties["subnetId"]] for one in recording.of_type(_MOUNT_TARGET)}
    private, public = subnets_of(settings.network)
    made = public if settings.network.existing is None else ()
    ranges = zip_longest(settings.network.availability_zones, private, made, fillvalue="")
    for name, inside, outside in sorted(ranges, key=itemgetter(0)):
        yield Zone(str(name), str(inside), str(outside), name in with_nat, name in with_mount)


def _groups(recording: Recording, catalog: Catalog, subnets: dict[str, str], order: dict[str, int]) -> Iterator[Group]:
    """The managed node groups of one launch template are one group, a part in each zone."""
    parts: dict[str, list[Resource]] = {}
    for one in recording.of_type(_NODE_GROUP):
        for urn in one.property_dependencies["launchTemplate"]:
            parts.setdefault(urn, []).append(one)
    found = []
    for template in (one for one in recording.of_type(_TEMPLATE) if one.urn in parts):
        members = parts[template.urn]
        one, sizes = members[0], [member.properties["scalingConfig"] for member in members]
        name = (one.properties.get("instanceTypes") or [template.properties.get("instanceType")])[0]
        instance = catalog.find_instance(name)
        smallest, largest = (sum(size[key] for size in sizes) for key in ("minSize", "maxSize"))
        if instance.gpus:  # each zone may have the whole group
            largest = max(size["maxSize"] for size in sizes)
        zones = {order[subnets[id_]] for one in members for id_ in one.properties["subnetIds"]}
        interfaces = template.properties.get("networkInterfaces") or ()
        efa = sum(interface["interfaceType"] != "interface" for interface in interfaces)
        capacity = one.properties["capacityType"].lower().replace("_", " ")
        placement = "cluster placement group" if template.properties.get("placement") else ""
        gpus = f", {instance.gpus} x {instance.gpu.model}" if instance.gpu else ""
        found.append(
            Group(
                name=template.name,
                zones=tuple(sorted(zones)),
                instance=f"{name}{gpus}",
                machines=f"{smallest} to {largest} nodes, {capacity}",
                fabric=", ".join(filter(None, [f"EFA x {efa}" if efa else "", placement])),
                has_gpus=bool(instance.gpus),
            )
        )
    yield from sorted(found, key=lambda group: (group.has_gpus, -len(group.zones), group.zones, group.name))


def _stores(recording: Recording) -> Iterator[Store]:
    versioned = {urn for one in recording.of_type(_VERSIONING) for urn in one.property_dependencies["bucket"]}
    for one in recording.of_type(_BUCKET):
        emptied = "emptied on destroy" if one.properties.get("forceDestroy") else ""
        words = filter(None, ("versioned" if one.urn in versioned else "", emptied))
        yield Store("S3", one.name, ", ".join(words), one.protect, one.urn)
    backed_up = {urn for one in recording.of_type(_EFS_BACKUP) for urn in one.property_dependencies["fileSystemId"]}
    for one in recording.of_type(_FILE_SYSTEM):
        backup = ", in AWS Backup" if one.urn in backed_up else ""
        yield Store("EFS", one.name, f"{one.properties['throughputMode']} throughput{backup}", one.protect, one.urn)
    links = {
        urn: link.properties["dataRepositoryPath"]
        for link in recording.of_type(_LINK)
        for urn in link.property_dependencies["fileSystemId"]
    }
    for one in recording.of_type(_LUSTRE):
        facts = f"{one.properties['storageCapacity']} GiB, {one.properties['deploymentType']}, one zone"
        yield Store("FSx", one.name, f"{facts},\nshows {links[one.urn]}", one.protect, one.urn)
    for one in recording.of_type(_DATABASE):
        copies = "standby in another zone" if one.properties.get("multiAz") else "one zone"
        days = one.properties.get("backupRetentionPeriod")
        facts = f"PostgreSQL {one.properties['engineVersion']}, {one.properties['instanceClass']}"
        backups = f"{days} d of backups" if days else "no backups"
        yield Store("RDS", one.name, f"{facts},\n{copies}, {backups}", one.protect, one.urn)
    for one in recording.of_type(_REPOSITORY):
        tags = f"{one.properties['imageTagMutability'].lower()} tags"
        scan = ", scanned on push" if one.properties["imageScanningConfiguration"]["scanOnPush"] else ""
        yield Store("ECR", one.name, f"{tags}{scan}", one.protect, one.urn)


def _services(recording: Recording) -> Iterator[Store]:
    for one in recording.of_type(_TOPIC):
        yield Store("SNS", one.name, "topic", one.protect, one.urn)
    for one in recording.of_type(_LOG_GROUP):
        yield Store("Logs", one.name, f"CloudWatch, kept {one.properties['retentionInDays']} d", one.protect, one.urn)
    for one in recording.of_type(_INGRESS):
        notes = one.properties["metadata"]["annotations"]
        name, scheme = notes[f"{_ALB}/load-balancer-name"], notes[f"{_ALB}/scheme"]
        yield Store("ALB", name, scheme, one.protect, one.urn)


def _workloads(recording: Recording) -> Iterator[Workload]:
    """Roles of pods, from Pod Identity associations and from add-ons."""
    accounts: dict[str, set[str]] = {}
    for one in recording.of_type(_POD_IDENTITY):
        properties = one.properties
        accounts.setdefault(properties["roleArn"], set()).add(
            f"{properties['namespace']}/{properties['serviceAccount']}"
        )
    for addon in recording.of_type(_ADDON):
        for one in addon.properties.get("podIdentityAssociations") or ():
            accounts.setdefault(one["roleArn"], set()).add(f"kube-system/{one['serviceAccount']}")
    names = {arn: arn.rpartition("/")[2].rpartition("-")[0] for arn in accounts}
    for arn in sorted(accounts, key=names.__getitem__):
        yield Workload(names[arn], tuple(sorted(accounts[arn])))
