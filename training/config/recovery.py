"""The section that says what follows a failure: how often each cause is restarted, how long that waits, and deadlines."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from infra.spec.section import Section
from training.config.values import Fraction, Timeout

Delay = Annotated[float, Field(ge=0, le=24 * 3600)]
"""Seconds, at most a day."""


class RestartSettings(Section):
    """Restarts after failures of one cause: the delay doubles from the second restart on."""

    restarts: NonNegativeInt | None = Field(
        None, description="Restarts until recovery.progress_steps more steps are committed; null is scale.max_restarts."
    )
    first_delay: Delay = Field(0.0, description="Seconds before the first restart.")
    delay: Delay = Field(1.0, description="Seconds before the second restart; twice as long before each further one.")
    longest_delay: Delay = Field(60.0, description="Seconds before a restart at most.")

    @model_validator(mode="after")
    def _the_longest_delay_is_the_longest(self) -> RestartSettings:
        longer = [name for name in ("first_delay", "delay") if getattr(self, name) > self.longest_delay]
        if longer:
            raise ValueError(
                f"longest_delay={self.longest_delay:g} must not be less than {longer[0]}={getattr(self, longer[0]):g}"
            )
        return self


class HardwareRestarts(RestartSettings):
    """Restarts after hardware errors: many, because another attempt may get another device or node."""

    restarts: NonNegativeInt | None = Field(
        10, description="Restarts until recovery.progress_steps more steps are committed; null is scale.max_restarts."
    )


class StorageRestarts(RestartSettings):
    """Restarts after storage errors: a few, with delays in which a file system or object store may come back."""

    restarts: NonNegativeInt | None = Field(
        3, description="Restarts until recovery.progress_steps more steps are committed; null is scale.max_restarts."
    )
    first_delay: Delay = Field(10.0, description="Seconds before the first restart.")
    delay: Delay = Field(30.0, description="Seconds before the second restart; twice as long before each further one.")
    longest_delay: Delay = Field(300.0, description="Seconds before a restart at most.")


class StartRestarts(Section):
    """Restarts after failed starts, until a deadline; their number does not matter."""

    delay: Delay = Field(5.0, description="Seconds before the first restart; twice as long before each further one.")
    longest_delay: Delay = Field(60.0, description="Seconds before a restart at most.")
    deadline: Timeout | None = Field(
        None,
        description="Seconds after the begin of the first failed start in which another one may begin; null is scale.start_timeout.",
    )


class RecoverySettings(Section):
    """What follows a failure, by its cause. An error in code, exhausted memory and a full disk end the run at once."""

    lost_process: RestartSettings = Field(
        default_factory=RestartSettings, description="A rank was killed, crashed or vanished."
    )
    lost_node: RestartSettings = Field(
        default_factory=RestartSettings, description="A node is gone, with its ranks (a Ray cluster of several nodes)."
    )
    communication: RestartSettings = Field(
        default_factory=RestartSettings,
        description="A connection between ranks broke, and no rank is known to have failed.",
    )
    hang: RestartSettings = Field(
        default_factory=RestartSettings,
        description="A rank did not answer within scale.collective_timeout, or exceeded a deadline of recovery.",
    )
    hardware: HardwareRestarts = Field(
        default_factory=HardwareRestarts,
        description="A GPU failed, or did not pass the check before the ranks connect.",
    )
    storage: StorageRestarts = Field(
        default_factory=StorageRestarts, description="A file system or object store did not answer, or had an error."
    )
    startup: StartRestarts = Field(default_factory=StartRestarts, description="The ranks did not start.")
    scheduling: StartRestarts = Field(
        default_factory=StartRestarts, description="The cluster has too few CPUs, GPUs or nodes for the ranks."
    )
    progress_steps: PositiveInt = Field(
        100, description="Committed steps since the failure before that give all causes their restarts back."
    )
    jitter: Fraction = Field(
        0.0,
        description="Share of a delay by which it is shortened at most, by a number that depends on the run's name and the restart only: "
        "runs that fail together then restart apart.",
    )
    step_deadline: Timeout | None = Field(
        None,
        description="Seconds of a step, with the wait for its batch, after which a rank ends with its stacks; the first step of an "
        "attempt has recovery.first_step_deadline. null is no deadline: between ranks scale.collective_timeout bounds a hang, and a new "
        "shape that compiles looks like one.",
    )
    first_step_deadline: Timeout | None = Field(
        3600.0,
        description="Seconds of an attempt's first step, which may compile, after which a rank ends with its stacks; null is no deadline.",
    )
    batch_deadline: Timeout | None = Field(
        600.0,
        description="Seconds of a wait for a batch, also of an evaluation, after which a rank ends with its stacks; null is no deadline.",
    )
