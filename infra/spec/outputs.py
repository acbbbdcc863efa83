"""Stack outputs: the contract between the infrastructure and job submission, and their only channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, NonNegativeInt, PositiveInt

from infra.spec.capacity import CapacityType
from infra.spec.catalog import Catalog
from infra.spec.errors import RefusedError
from infra.spec.node_group import NodeGroup
from infra.spec.node_labels import GROUP_LABEL, Taint
from infra.spec.protection import EnvironmentKind
from infra.spec.release import ReleaseManifest
from infra.spec.section import Section, validate
from infra.spec.settings.environment import AccountId, KubernetesName, RoleArn
from infra.spec.settings.logs import LogDestination

SCHEMA_VERSION = 1

KEPT_RELEASE = "RTP_KEPT_RELEASE"
"""Environment variable of the program: JSON of the outputs `platform` and `release`, for an update that takes one step of an upgrade back.
Pulumi writes outputs in every update. With the older release in them, that release's checkout could take everything back."""

Workload = Literal[
    "trainer",
    "mlflow",
    "mlflow-backup",
    "autoscaler",
    "ebs-csi",
    "efs-csi",
    "monitoring",
    "logs",
    "data-sync",
    "reaper",
]


class ClusterOutput(Section):
    """The EKS cluster."""

    name: str = Field(description="Name of the cluster.")
    endpoint: str = Field(pattern=r"^https://", description="URL of the API server.")
    certificate_authority: str = Field(min_length=1, description="CA certificate, base64.")
    kubernetes: str = Field(pattern=r"^1\.\d{2}$", description="Kubernetes minor.")


class StorageOutput(Section):
    """Storage of datasets, checkpoints and artifacts."""

    checkpoint_bucket: str = Field(description="S3 bucket of checkpoints.")
    artifact_bucket: str = Field(description="S3 bucket of MLflow's artifacts.")
    efs_id: str = Field(pattern=r"^fs-[0-9a-f]+$", description="EFS file system of datasets and runs.")
    efs_access_point: str = Field(pattern=r"^fsap-[0-9a-f]+$", description="EFS access point of the datasets.")
    lustre_id: Annotated[str, Field(pattern=r"^fs-[0-9a-f]+$")] | None = Field(
        None, description="FSx for Lustre file system that jobs mount; null: none."
    )
    dataset_sources: tuple[str, ...] = Field((), description="S3 buckets that datasets may be copied from.")


class TeamOutput(Section):
    """A team's namespace and queue."""

    name: KubernetesName = Field(description="Name of the team.")
    namespace: KubernetesName = Field(description="Namespace of the team.")
    queue: KubernetesName = Field(description="Kueue LocalQueue in the namespace.")
    dataset_buckets: tuple[str, ...] = Field((), description="BUCKET or BUCKET/FOLDER that the team's jobs may read.")
    efs_access_point: Annotated[str, Field(pattern=r"^fsap-[0-9a-f]+$")] | None = Field(
        None, description="EFS access point of the team's runs; stacks of an earlier release do not say."
    )


class NetworkOutput(Section):
    """Where machines beside the cluster are started, as Ray's cluster launcher does."""

    private_subnets: tuple[Annotated[str, Field(pattern=r"^subnet-[0-9a-f]+$")], ...] = Field(
        min_length=1, description="Private subnets, one per zone."
    )
    node_security_group: str = Field(
        pattern=r"^sg-[0-9a-f]+$", description="Security group of the nodes, whose members reach the file systems."
    )


class GpuGroupOutput(Section):
    """A GPU node group, as job submission needs it."""

    name: str = Field(description="Name of the group, and of its Kueue ResourceFlavor.")
    instance_type: str = Field(description="A type of the instance catalogue.")
    gpus_per_node: PositiveInt = Field(description="Physical GPUs of a node.")
    devices_per_gpu: PositiveInt = Field(
        description="nvidia.com/gpu that the device plugin advertises per GPU; above 1, pods share it, for development."
    )
    efa_per_node: NonNegativeInt = Field(description="vpc.amazonaws.com/efa of a node; 0 without EFA.")
    max_nodes: PositiveInt = Field(description="Maximum number of nodes.")
    cache_gib: NonNegativeInt = Field(
        0, description="Room on a node's NVMe disks for the jobs' copies of datasets, in GiB; 0 without such disks."
    )
    capacity_type: CapacityType = Field(description="EKS's name of the kind of capacity.")
    drain_before: AwareDatetime | None = Field(
        None, description="Time by which the nodes must be drained; null: never."
    )
    network_layers: NonNegativeInt = Field(
        0, description="Layers of EC2's network by which Kueue places workers; 0: it does not."
    )
    labels: dict[str, str] = Field(description="Labels that select the group's nodes.")
    taints: tuple[Taint, ...] = Field(description="Taints that the group's pods must tolerate.")

    @property
    def selector(self) -> dict[str, str]:
        """Node selector of a job's pods: the label that the group's Kueue ResourceFlavor has too."""
        return {GROUP_LABEL: self.labels[GROUP_LABEL]}


class LogsOutput(Section):
    """Where the logs of pods that are gone can be read."""

    destination: LogDestination = Field(description="Kind of the store; none: the logs end with the pods.")
    log_group: str | None = Field(None, description="CloudWatch log group; null for another destination.")
    loki_url: str | None = Field(None, description="URL of Loki; null for another destination.")


class StackOutputs(Section):
    """Everything that job submission knows about a stack."""

    schema_version: Literal[1] = Field(description="Version of this contract.")
    platform: str = Field(description="Platform version that deployed the stack.")
    environment: str = Field(description="Name of the environment.")
    kind: EnvironmentKind = Field(description="Kind of the environment.")
    region: str = Field(description="AWS region.")
    account: AccountId = Field(description="AWS account.")
    cluster: ClusterOutput = Field(description="The EKS cluster.")
    registries: dict[str, str] = Field(description="ECR repository URL by the image's name in the release manifest.")
    digests: dict[str, Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]] = Field(
        {}, description="Digests of our images where the stack does not run the release's: a sandbox builds its own."
    )
    storage: StorageOutput = Field(description="Buckets and file systems.")
    network: NetworkOutput | None = Field(
        None, description="Subnets and security group of the nodes; stacks of an earlier release do not say."
    )
    mlflow_uri: Annotated[str, Field(pattern=r"^https?://")] = Field(description="Tracking URI inside the cluster.")
    roles: dict[Workload, RoleArn] = Field(description="IAM role by workload.")
    teams: tuple[TeamOutput, ...] = Field(description="Namespaces and queues.")
    gpu_groups: tuple[GpuGroupOutput, ...] = Field(
        description="GPU node groups, in the order in which Kueue tries them."
    )
    head_instance_type: str | None = Field(
        None, description="Instance type of the head nodes; stacks of an earlier release do not say."
    )
    head_max_nodes: PositiveInt | None = Field(
        None, description="Maximum number of head nodes; stacks of an earlier release do not say."
    )
    is_recorded: bool = Field(
        False,
        description="Of a recorded program whose pods pull no images, as on a sandbox's fake nodes; never of a stack.",
    )
    release: str | None = Field(
        None, description="Release manifest that deployed the stack, as JSON; stacks of an earlier release do not say."
    )
    logs: LogsOutput = Field(
        LogsOutput(destination="none"), description="The pods' logs; stacks of an earlier release ship none."
    )


def gpu_group_output(group: NodeGroup) -> GpuGroupOutput:
    """The output of a GPU group."""
    return GpuGroupOutput(
        name=group.name,
        instance_type=group.instance.name,
        gpus_per_node=group.instance.gpus,
        devices_per_gpu=group.devices_per_gpu,
        efa_per_node=group.plan.efa_count,
        max_nodes=group.max_size,
        cache_gib=group.cache_gib,
        capacity_type=group.plan.capacity_type,
        drain_before=group.plan.drain_before,
        network_layers=group.network_layers,
        labels=dict(group.labels),
        taints=group.taints,
    )


def read_outputs(mapping: Mapping[str, Any], *, file: str) -> StackOutputs:
    """Validate a stack's outputs, as `pulumi stack output --json` prints them.

    Args:
        mapping: outputs by name, as plain data.
        file: origin of the outputs, for messages.

    Raises:
        SettingsError: names every missing, unknown or invalid output.
    """
    return validate(StackOutputs, mapping, file=file)


def check_outputs(outputs: StackOutputs, release: ReleaseManifest, *, catalog: Catalog) -> None:
    """Refuse a stack of another release: trainer and stack must have the same version.

    Raises:
        RefusedError: lists every difference from the release or the catalogue.
    """
    differences = [*_release_differences(outputs, release), *_group_differences(outputs, catalog)]
    if differences:
        lines = "".join(f"\n  {difference}" for difference in differences)
        raise RefusedError(
            f"stack {outputs.environment} does not match this checkout's release:{lines}",
            remedy="check out the stack's version, or bring the stack up with this one",
        )


def _release_differences(outputs: StackOutputs, release: ReleaseManifest) -> Iterator[str]:
    if outputs.platform != release.platform:
        yield f"platform: the stack is {outputs.platform}, this checkout is {release.platform}"
    if outputs.cluster.kubernetes not in release.kubernetes.supported:
        supported = ", ".join(release.kubernetes.supported)
        yield f"cluster.kubernetes: the stack runs {outputs.cluster.kubernetes}, supported: {supported}"
    ours = {name for name, image in release.images.items() if image.is_ours}
    for name in sorted(ours - set(outputs.registries)):
        yield f"registries.{name}: the release has this image, the stack has no repository for it"


def _group_differences(outputs: StackOutputs, catalog: Catalog) -> Iterator[str]:
    for group in outputs.gpu_groups:
        instance = catalog.instances.get(group.instance_type)
        if instance is None:
            yield f"gpu_groups.{group.name}: {group.instance_type} is not in the catalogue"
        elif group.gpus_per_node != instance.gpus or group.efa_per_node not in {0, instance.efa_interfaces}:
            yield (
                f"gpu_groups.{group.name}: {group.gpus_per_node} GPUs and {group.efa_per_node} EFA interfaces; "
                f"{instance.name} has {instance.gpus} and {instance.efa_interfaces}"
            )
