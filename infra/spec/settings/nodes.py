"""Node groups: the system group, which runs the platform itself, and the GPU groups."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from infra.spec.capacity import LaunchRequest
from infra.spec.section import Section

Percent = Annotated[int, Field(ge=1, le=100)]


class SystemNodes(Section):
    """The node group for operators, monitoring and Ray heads."""

    instance_type: str = Field("m7i.xlarge", description="An instance type of the catalogue without GPUs.")
    min_size: PositiveInt = Field(2, description="Minimum number of nodes; at least 1, for the autoscaler itself.")
    desired_size: PositiveInt = Field(2, description="Number of nodes at creation; the autoscaler changes it.")
    max_size: PositiveInt = Field(4, description="Maximum number of nodes.")
    disk_gib: Annotated[int, Field(ge=30, le=16384)] = Field(100, description="Root volume in GiB, encrypted gp3.")

    @model_validator(mode="after")
    def _sizes_are_in_order(self) -> SystemNodes:
        _check_sizes(self.min_size, self.desired_size, self.max_size)
        return self


class Sharing(Section):
    """GPU sharing between pods, for development; never for training."""

    time_slices: Annotated[int, Field(ge=1, le=16)] = Field(
        1, description="Pods that time-slice a GPU, without memory isolation; 1: no sharing."
    )
    mig_profile: str | None = Field(
        None,
        pattern=r"^[1-7]g\.\d+gb$",
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
    sharing: Sharing = Field(Sharing(), description="Sharing of one GPU by several pods.")
    labels: dict[str, str] = Field(default_factory=dict, description="Additional node labels.")
    update_percent: Percent = Field(33, description="Percentage of nodes that a rolling update replaces at a time.")
    repair: bool = Field(True, description="EKS node auto repair: replace or reboot nodes reported as unhealthy.")

    @model_validator(mode="after")
    def _sizes_are_in_order(self) -> GpuGroup:
        _check_sizes(self.min_size, self.desired_size, self.max_size)
        return self


def _check_sizes(smallest: int, desired: int, largest: int) -> None:
    if not smallest <= desired <= largest:
        raise ValueError(
            f"min_size={smallest}, desired_size={desired}, max_size={largest}: must satisfy min ≤ desired ≤ max"
        )
