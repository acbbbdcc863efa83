"""What a run's checkpoints say of the run that they belong to."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic.main import IncEx

from training.checkpoint.manifest import Identity
from training.code.kept import RunCode
from training.config.schema import TrainingSettings
from training.data.types import DataBundle
from training.environment import platform_version

_NOT_RECORDED: Mapping[str, IncEx | bool] = {
    "run": {"name", "directory", "dollars_per_hour"},
    "scale": {"workers"},
    "tracking": True,
    "metrics": True,
    "profile": True,
    "data": {"cache"},
    "checkpoint": {"remote", "remote_owner", "remote_patience"},
}
"""Settings that a checkpoint does not hold: a run may be moved and report elsewhere, and the world size is recorded as such."""


def identity_of(settings: TrainingSettings, bundle: DataBundle, *, world: int, code: RunCode | None) -> Identity:
    """The identity of a run that trains on a dataset, with `world` ranks and the code of its own, if it has any."""
    return Identity(
        model=settings.model.name,
        objective=settings.objective.name,
        dataset_fingerprint=bundle.fingerprint,
        global_batch=settings.loop.global_batch,
        seed=settings.run.seed,
        world=world,
        platform_version=platform_version(),
        settings=settings.model_dump(mode="json", exclude=_NOT_RECORDED),
        code=code.identity.dump() if code else None,
    )
