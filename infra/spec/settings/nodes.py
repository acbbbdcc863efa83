"""Node groups: the system group, which runs the platform itself, the head group and the GPU groups."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from infra.spec.capacity import LaunchRequest
from infra.spec.matching import Matching
from infra.spec.section import Section

Percent = Annotated[int, Field(ge=1, le=100)]

BASELINE_THROUGHPUT_MIB = 125
"""Throughput of a gp3 volume in MiB/s without extra cost (EBS user guide, "General Purpose SSD volumes")."""

Throughput = Annotated[int | None, Field(ge=BASELINE_THROUGHPUT_MIB, le=750)]
"""Throughput of a gp3 volume in MiB/s; 750 is what its 3000 baseline IOPS allow, at 0.25 MiB/s each (as above)."""


class SystemNodes(Section):
    """The node group for operators, MLflow and monitoring."""

    instance_type: str = Field("m7i.xlarge", description="An instance type of the catalogue without GPUs.")
    min_size: PositiveInt = Field(
        3, description="Minimum number of nodes; at least one per zone, because volumes of the platform are zonal."
    )
    desired_size: PositiveInt = Field(3, description="Number of nodes at creation; the autoscaler changes it.")
    max_size: PositiveInt = Field(6, description="Maximum number of nodes.")
    disk_gib: Annotated[int, Field(ge=30, le=16384)] = Field(100, description="Root volume in GiB, encrypted gp3.")

    @model_validator(mode="after")
    def _sizes_are_in_order(self) -> SystemNodes:
        _check_sizes(self.min_size, self.desired_size, self.max_size)
        return self


class HeadNodes(Section):
    """The node group for the pods of jobs that need no GPU: Ray heads, submitters, ranks on CPUs.

    It is separate from the system group, so that an update of that group ends no job. It is on demand, because a job
    does not survive the loss of its head.
    """

    instance_type: str = Field(
        "m7i.xlarge", description="An instance type of the catalogue without GPUs; a head needs 6 GiB of memory."
    )
    min_size: NonNegativeInt = Field(0, description="Minimum number of nodes; 0 costs nothing while no job runs.")
    desired_size: NonNegativeInt = Field(0, description="Number of nodes at creation; the autoscaler changes it.")
    max_size: PositiveInt = Field(4, description="Maximum number of nodes.")
    disk_gib: Annotated[int, Field(ge=30, le=16384)] = Field(100, description="Root volume in GiB, encrypted gp3.")
    disk_throughput_mib: Throughput = Field(
        None,
        description="Throughput of the root volume in MiB/s, 125 to 750; null: 600 if it holds the images, 125 if NVMe does.",
    )

    @model_validator(mode="after")
    def _sizes_are_in_order(self) -> HeadNodes:
        _check_sizes(self.min_size, self.desired_size, self.max_size)
        return self


class Sharing(Section):
    """GPU sharing between pods, for development; never for training."""

    time_slices: Annotated[int, Field(ge=1, le=16)] = Field(
        1, description="Pods that time-slice a GPU, without memory isolation; 1: no sharing."
    )
    mig_profile: Annotated[str, Matching(r"^[1-7]g\.\d+gb$", "must be a MIG profile, e.g. 1g.10gb")] | None = Field(
        None,
        description="MIG profile into which every GPU is partitioned, e.g. 1g.10gb; null: no MIG.",
    )

    @model_validator(mode="after")
    def _one_way_only(self) -> Sharing:
        if self.time_slices > 1 and self.mig_profile is not None:
            raise ValueError(
                f"time_slices={self.time_slices} and mig_profile={self.mig_profile} are mutually exclusive"
            )
        return self


class GpuGroup(LaunchRequest):
    """A GPU node group."""

    min_size: NonNegativeInt = Field(0, description="Minimum number of nodes; 0 costs nothing while idle.")
    desired_size: NonNegativeInt = Field(0, description="Number of nodes at creation; the autoscaler changes it.")
    disk_gib: Annotated[int, Field(ge=100, le=16384)] = Field(200, description="Root volume in GiB, encrypted gp3.")
    disk_throughput_mib: Throughput = Field(
        None,
        description="Throughput of the root volume in MiB/s, 125 to 750; null: 600 if it holds the images, 125 if NVMe does.",
    )
    sharing: Sharing = Field(Sharing(), description="Sharing of one GPU by several pods.")
    labels: dict[str, str] = Field(default_factory=dict, description="Additional node labels.")
    topology: Literal["none", "network"] = Field(
        "none",
        description="network: Kueue places the workers of a job near each other in EC2's network; for a group of fixed size, "
        "because it counts only nodes that exist.",
    )
    prepull: bool = Field(True, description="Nodes pull the trainer image when they start, before a job needs it.")
    update_percent: Percent = Field(33, description="Percentage of nodes that a rolling update replaces at a time.")
    repair: bool = Field(True, description="EKS node auto repair: replace or reboot nodes reported as unhealthy.")

    @model_validator(mode="after")
    def _sizes_are_in_order(self) -> GpuGroup:
        _check_sizes(self.min_size, self.desired_size, self.max_size)
        return self

    def largest_in_a_zone(self, zones: int) -> int:  # noqa: ARG002 - of the base class
        """All of the group's nodes: the ranks of a job stay in one zone, and a job may take the whole group."""
        return self.max_size


def _check_sizes(smallest: int, desired: int, largest: int) -> None:
    if not smallest <= desired <= largest:
        raise ValueError(
            f"min_size={smallest}, desired_size={desired}, max_size={largest}: must satisfy min ≤ desired ≤ max"
        )
