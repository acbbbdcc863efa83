"""The section that says how the ranks exchange gradients."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from infra.spec.section import Section

_POWERSGD = ("rank", "start_step", "min_compression_rate", "warm_start", "error_feedback")


class CommunicationSettings(Section):
    """What the ranks send each other, under strategy.name=ddp with two workers or more."""

    hook: Literal["none", "fp16", "bf16", "powersgd"] = Field(
        "none",
        description="What is sent of a gradient: none (all of it, as it is) | fp16 (half the bytes; above 65504 a step is not finite) | "
        "bf16 (half the bytes, fewer digits) | powersgd (two thin matrices in place of each weight's gradient, arXiv:1905.13727).",
    )
    rank: PositiveInt = Field(
        2, description="Columns of PowerSGD's matrices; more are closer to the gradient, and more bytes."
    )
    start_step: Annotated[int, Field(ge=2)] = Field(
        100,
        description="Steps that send whole gradients before PowerSGD starts; about a tenth of the run, and no fewer than "
        "schedule.warmup_steps.",
    )
    min_compression_rate: Annotated[float, Field(ge=1)] = Field(
        2.0, description="Gradients that PowerSGD would not make smaller by this factor are sent whole."
    )
    warm_start: bool = Field(
        True, description="Start PowerSGD's iteration from the matrices of the step before, instead of random ones."
    )
    error_feedback: bool = Field(
        True, description="Add what PowerSGD has not sent to the next gradient; takes the memory of one more gradient."
    )
    bucket_megabytes: PositiveFloat | None = Field(
        None,
        description="MiB of gradients that are sent at a time, while the backward pass computes the next ones; null is torch's: 1 for the "
        "first, then 25.",
    )
    gradient_as_bucket_view: bool = Field(
        True, description="Keep the gradients in the memory that is sent, instead of copying them there."
    )
    static_graph: bool = Field(
        False,
        description="Every step uses the same weights, in the same way; some may be without a use. The first two steps of a process "
        "send their gradients in one piece, so that with more than two workers a resumed run differs by rounding.",
    )
    sync_batchnorm: bool = Field(
        False,
        description="Batch norm takes its statistics from the samples of all ranks (GPUs only); for few samples per rank.",
    )

    @model_validator(mode="after")
    def _options_belong_to_powersgd(self) -> CommunicationSettings:
        if self.hook != "powersgd" and (given := sorted(self.changed & set(_POWERSGD))):
            raise ValueError(f"{', '.join(given)}: settings of hook=powersgd, got hook={self.hook}")
        return self

    @model_validator(mode="after")
    def _powersgd_keeps_its_buckets(self) -> CommunicationSettings:
        if self.hook == "powersgd" and self.static_graph:
            raise ValueError(
                "static_graph=true groups the gradients anew after two steps, and hook=powersgd keeps state of the groups; "
                "set static_graph=false"
            )
        return self

    @property
    def changed(self) -> set[str]:
        """Settings that do not have their default."""
        return {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default}
