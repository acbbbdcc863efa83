"""The size of the suite's job, by which its report is judged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class JobShape:
    """The pods of the job.

    Attributes:
        pods: worker pods.
        gpus: GPUs of each; 0 on CPUs.
        efa: EFA interfaces of each.
        instance_type: of their nodes; empty on CPUs.
        gpus_per_node: GPUs of such a node.
    """

    pods: int
    gpus: int
    efa: int
    instance_type: str
    gpus_per_node: int

    @property
    def ranks(self) -> int:
        """Ranks of the job."""
        return self.pods * max(1, self.gpus)
