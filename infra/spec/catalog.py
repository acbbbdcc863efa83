"""The instance catalogue: the EC2 instance types this platform supports, with their devices and prices.

EFA counts, NVMe disks and prices come from here, not from a live node, because a group scaled to zero has no nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from infra.spec.compute_capability import Capability, parse_capability
from infra.spec.errors import SettingsError
from infra.spec.section import Section, nearest, read_document, validate

CATALOG_FILE = Path(__file__).with_name("catalog.yaml")

Architecture = Literal["x86_64", "arm64"]
QuotaFamily = Literal["standard", "gpu_graphics", "gpu_training", "gpu_training_p5", "gpu_training_p6"]


class Source(Section):
    """Date and source of a set of figures."""

    as_of: date = Field(description="Date of the figures.")
    source: str = Field(min_length=1, description="Source of the figures.")


class Price(Section):
    """A price in the price region; null until it is looked up."""

    usd: NonNegativeFloat | None = Field(description="US dollars per unit; null: unresolved.")
    as_of: date | None = Field(None, description="Date of the price.")
    source: str | None = Field(None, description="Source of the price.")

    @model_validator(mode="after")
    def _a_price_has_a_source(self) -> Price:
        if self.usd is not None and (self.as_of is None or self.source is None):
            raise ValueError("a price needs as_of and source; without them it must be null")
        return self


class ServicePrices(Section):
    """Prices of everything except nodes."""

    eks_cluster_hour: Price = Field(description="EKS control plane, Kubernetes version in standard support.")
    eks_extended_support_hour: Price = Field(description="EKS control plane, Kubernetes version in extended support.")
    nat_gateway_hour: Price = Field(description="NAT gateway, without traffic.")
    interface_endpoint_az_hour: Price = Field(description="Interface endpoint per availability zone, without traffic.")
    public_ipv4_hour: Price = Field(description="Public IPv4 address in use.")
    gp3_gib_month: Price = Field(description="EBS gp3, per GiB and month, baseline throughput.")
    gp3_throughput_gibps_month: Price = Field(
        description="EBS gp3, per GiB/s of throughput beyond the baseline, and month."
    )
    log_ingestion_gb: Price = Field(description="CloudWatch Logs, standard class, per GB of logs, first tier.")
    rds_gp3_gib_month: Price = Field(description="RDS gp3, per GiB and month, one availability zone.")


class Prices(Section):
    """The price table."""

    region: str = Field(description="Region of the prices; in other regions they are unresolved.")
    instances: Source = Field(description="Date and source of the instances' usd_per_hour.")
    services: ServicePrices = Field(description="Prices of services.")
    databases: dict[str, Price] = Field(description="RDS for PostgreSQL per hour by class, one availability zone.")
    lustre: dict[str, Price] = Field(
        description="FSx for Lustre per GiB and month, by tier of `storage.lustre`. `make prices` does not look them up."
    )


class DatabaseClasses(Section):
    """Families of DB instance classes that come in the same sizes."""

    families: tuple[str, ...] = Field(description="Names of the families, e.g. t4g.")
    sizes: tuple[str, ...] = Field(description="Sizes of each, e.g. medium.")


class PostgreSql(Source):
    """What RDS for PostgreSQL offers."""

    majors: tuple[str, ...] = Field(description="Major versions in standard support.")
    classes: tuple[DatabaseClasses, ...] = Field(description="Classes of an instance.")

    @property
    def class_names(self) -> tuple[str, ...]:
        """Every class, e.g. db.t4g.medium."""
        return tuple(f"db.{family}.{size}" for one in self.classes for family in one.families for size in one.sizes)


class QuotaCodes(Section):
    """Codes of the Service Quotas that limit the vCPUs of a family."""

    on_demand: str = Field(pattern=r"^L-[0-9A-F]{8}$", description="Quota of running on-demand instances.")
    spot: str | None = Field(
        pattern=r"^L-[0-9A-F]{8}$", description="Quota of spot instance requests; null: AWS lists none."
    )


class Family(Section):
    """Facts common to all sizes of an instance family."""

    quota: QuotaFamily = Field(description="The vCPU quota that the family counts against.")
    capacity_blocks: bool = Field(description="Capacity Blocks for ML are sold.")
    gpudirect_rdma: bool = Field(
        False,
        description="GPUDirect RDMA: GPUs send and receive over EFA, bypassing host memory (EC2 user guide, "
        '"Elastic Fabric Adapter", table of RDMA read and write).',
    )
    network_layers: Literal[0, 3, 4] = Field(
        0,
        description="Layers of the network that EC2 reports for an instance; 0: it reports none (EC2 user guide, "
        '"Prerequisites for Amazon EC2 topology").',
    )
    regions: tuple[str, ...] = Field(min_length=1, description="Regions that offer every listed size.")


class Gpu(Section):
    """The GPUs of an instance."""

    model: str = Field(description="NVIDIA model as EC2 names it.")
    count: PositiveInt = Field(description="GPUs per instance.")
    memory_mib: PositiveInt = Field(description="Memory of one GPU in MiB, as EC2 reports it.")
    mig: bool = Field(description="Supports MIG.")


class Nvme(Section):
    """Instance store disks."""

    disks: PositiveInt = Field(description="Disks per instance.")
    disk_gb: PositiveInt = Field(description="Size of one disk in GB (10^9 bytes).")


class InstanceType(Section):
    """One instance type. `name` is its key in the file."""

    name: str = Field(pattern=r"^[a-z0-9-]+\.[a-z0-9]+$", description="Name of the type.")
    architecture: Architecture = Field(description="Architecture of the CPU.")
    vcpus: PositiveInt = Field(description="vCPUs.")
    memory_gib: PositiveInt = Field(description="Memory in GiB.")
    numa_nodes: PositiveInt | None = Field(description="NUMA nodes; null: unresolved.")
    network_cards: PositiveInt = Field(1, description="Network cards.")
    efa_interfaces: NonNegativeInt = Field(0, description="Maximum number of EFA interfaces.")
    efa_on_first_card: bool = Field(
        True,
        description="Network card 0 supports EFA; false: it carries IP only (EC2 user guide, "
        '"Maximize network bandwidth on Amazon EC2 instances with multiple network cards", P6-B300).',
    )
    efa_huge_pages_mib: PositiveInt = Field(
        2 * 5128,
        description="Memory that the accelerated AMI reserves as 2 MiB huge pages on a node with EFA; by default the 5128 "
        'pages of the EKS user guide ("Run machine learning training with Elastic Fabric Adapter").',
    )
    network_gbits: PositiveFloat | None = Field(
        None,
        description='Network bandwidth in Gbit/s that lasts: EC2\'s `NetworkPerformance`, of a type with bursts ("Up to") the baseline; '
        "null: not listed, as for types without GPUs.",
    )
    gpu: Gpu | None = Field(None, description="GPUs; null: none.")
    nvme: Nvme | None = Field(None, description="Instance store; null: none.")
    usd_per_hour: NonNegativeFloat | None = Field(description="Linux on-demand price; null: unresolved.")

    @property
    def family(self) -> str:
        """The part of the name before the dot."""
        return self.name.partition(".")[0]

    @property
    def gpus(self) -> int:
        """Number of GPUs; may be 0."""
        return self.gpu.count if self.gpu else 0


class Catalog(Section):
    """The catalogue file."""

    facts: Source = Field(description="Date and source of the figures.")
    prices: Prices = Field(description="The price table.")
    postgresql: PostgreSql = Field(description="Versions and classes of MLflow's database.")
    quotas: dict[QuotaFamily, QuotaCodes] = Field(description="Quota codes of the ec2 service by family group.")
    dcgm_exporter_memory_mib: dict[PositiveInt, PositiveInt] = Field(
        description="Memory limit of dcgm-exporter in MiB, by the largest number of GPUs it suffices for."
    )
    compute_capabilities: dict[str, Annotated[str, Field(pattern=r"^\d+\.\d$")]] = Field(
        description='Compute capability by GPU model, as in "8.9".'
    )
    families: dict[str, Family] = Field(description="Instance families by name.")
    instances: dict[str, InstanceType] = Field(description="Instance types by name.")

    @model_validator(mode="after")
    def _every_instance_has_a_family(self) -> Catalog:
        strays = sorted({one.family for one in self.instances.values()} - set(self.families))
        if strays:
            raise ValueError(f"families lacks {', '.join(strays)}, which listed instances belong to")
        return self

    @model_validator(mode="after")
    def _every_gpu_has_a_compute_capability(self) -> Catalog:
        models = {one.gpu.model for one in self.instances.values() if one.gpu is not None}
        if strays := sorted(models - set(self.compute_capabilities)):
            raise ValueError(f"compute_capabilities lacks {', '.join(strays)}, which listed instances have")
        return self

    def find_instance(self, name: str) -> InstanceType:
        """The instance type called `name`.

        Raises:
            SettingsError: unknown type; names the nearest one.
        """
        if name not in self.instances:
            raise SettingsError(
                f"instance type {name!r} is not in the catalogue ({nearest(name, self.instances)})",
                remedy="use a listed type, or add this one with its figures to infra/spec/catalog.yaml",
            )
        return self.instances[name]

    def family_of(self, name: str) -> Family:
        """The family of an instance type; raises like `find_instance`."""
        return self.families[self.find_instance(name).family]

    def compute_capability(self, name: str) -> Capability | None:
        """Compute capability of the GPUs of an instance type, None if it has none; raises like `find_instance`."""
        gpu = self.find_instance(name).gpu
        return None if gpu is None else parse_capability(self.compute_capabilities[gpu.model])

    def families_from(self, capability: Capability) -> tuple[str, ...]:
        """Families with GPUs of that compute capability or a higher one."""
        having = [one for one in self.instances if (self.compute_capability(one) or (0, 0)) >= capability]
        return tuple(dict.fromkeys(self.instances[one].family for one in having))

    def regions(self) -> frozenset[str]:
        """Every region that offers at least one family."""
        return frozenset(region for family in self.families.values() for region in family.regions)

    def dcgm_memory_mib(self, gpus: int) -> int:
        """Memory limit of dcgm-exporter in MiB on a node with `gpus` GPUs: the smallest entry that suffices."""
        return self.dcgm_exporter_memory_mib[min(size for size in self.dcgm_exporter_memory_mib if size >= gpus)]


@cache
def load_catalog(path: Path = CATALOG_FILE) -> Catalog:
    """Read the catalogue.

    Raises:
        SettingsError: the file is not a valid catalogue; names the key.
    """
    document = read_document(path)
    return validate(Catalog, with_names(document.value), file=path.name, places=document.places())


def with_names(document: Mapping[str, Any]) -> dict[str, Any]:
    """The parsed file, with each instance's key copied into its `name`."""
    instances = document.get("instances")
    if not isinstance(instances, dict):
        return dict(document)
    return {**document, "instances": {name: {"name": name, **facts} for name, facts in instances.items()}}
