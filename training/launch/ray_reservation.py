"""Room for all workers of a run at once, on the cluster of `ray.init`.

The workers are placed one by one, so that each can be replaced without the others. Two runs that start together could then each hold
half of what the other needs. So a run of a fixed size first waits for a placement group of its size, which gets all of its resources
or none, and gives it back right before its workers take its place.
"""

from __future__ import annotations

from collections.abc import Mapping

from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group


class Reservation:
    """Resources that are asked for, and held from the moment at which all of them are free until `release`."""

    def __init__(self, need: Mapping[str, float], *, workers: int) -> None:
        """Ask for the resources of all workers.

        Args:
            need: resources of one worker.
            workers: number of workers.
        """
        self._group: PlacementGroup = placement_group([dict(need)] * workers)

    @property
    def is_ready(self) -> bool:
        """Whether all of the resources are there."""
        return bool(placement_group_table(self._group)["state"] == "CREATED")

    def release(self) -> None:
        """Give the resources back, or ask for them no more."""
        remove_placement_group(self._group)
