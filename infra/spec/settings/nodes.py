"""Node groups: the system group, on which the platform itself runs, and the GPU groups."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from infra.spec.capacity import LaunchRequest
from infra.spec.section import Section

Percent = Annotated[int, Field(ge=1, le=100)]


class SystemNodes(Section):
    """The node group of the operators, the monitoring and the Ray heads."""

    instance_type: str = Field("m7i.xlarge", description="A type of the catalogue without GPUs.")
    min_size: PositiveInt = Field(
        2, description="Smallest number of nodes; at least 1, nothing else starts the cluster."
    )
    desired_size: PositiveInt = Field(2, description="Number of nodes at creation; the autoscaler moves it.")
    max_size: PositiveInt = Field(4, description="Largest number of nodes.")
    disk_gib: Annotated[int, Field(ge=30, le=16384)] = Field(100, description="Root volume in GiB, encrypted gp3.")

    @model_validator(mode="after")
    def _sizes_are_in_order(self) -> SystemNodes:
        _check_sizes(self.min_size, self.desired_size, self.max_size)
        return self


class Sharing(Section):
    """How one GPU serves several pods; for development only, never for training."""

    time_slices: Annotated[int, Field(ge=1, le=16)] = Field(
        1, description="Pods that share a GPU in turn, without memory isolation; 1 does not share."
    )
    mig_profile: str | None = Field(
        None,
        pattern=r"^[1-7]g\.\d+gb$",
        description="MIG slice every GPU is cut into, e.g. 1g.10gb; null does not cut.",
    )

    @model_validator(mode="after")
    def _one_way_only(self) -> Sharing:
        if self.time_slices > 1 and self.mig_profile is not None:
            raise ValueError(f"time_slices={self.time_slices} and mig_profile={self.mig_profile} exclude each other")
        return self


class GpuGroup(LaunchRequest):
    """A group of equal GPU nodes."""

    min_size: NonNegativeInt = Field(0, description="Smallest number of nodes; 0 costs nothing while nobody trains.")
    desired_size: NonNegativeInt = Field(0, description="Number of nodes at creation; the autoscaler moves it.")
    disk_gib: Annotated[int, Field(ge=100, le=16384)] = Field(200, description="Root volume in GiB, encrypted gp3.")
    sharing: Sharing = Field(Sharing(), description="Sharing of one GPU by several pods.")
    labels: dict[str, str] = Field(default_factory=dict, description="More node labels, e.g. to select a group.")
    update_percent: Percent = Field(33, description="Share of the nodes a rolling update replaces at a time.")
    repair: bool = Field(True, description="EKS replaces or reboots nodes that the node monitoring agent finds broken.")

    @model_validator(mode="after")
    def _sizes_are_in_order(self) -> GpuGroup:
        _check_sizes(self.min_size, self.desired_size, self.max_size)
        return self


def _check_sizes(smallest: int, desired: int, largest: int) -> None:
    if not smallest <= desired <= largest:
        raise ValueError(
            f"min_size={smallest}, desired_size={desired}, max_size={largest}: must satisfy min ≤ desired ≤ max"
        )
