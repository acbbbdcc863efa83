"""What is measured: groups of runs that differ in one setting, the first of which the others are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from training.config.schema import TrainingSettings

Device = Literal["gpu", "cpu"]

WARM_UP_STEPS = 10
"""Steps before the measurement: they choose kernels, compile, and fill the allocator's cache."""

Sections = Mapping[str, Mapping[str, Any]]

_BF16: Sections = {"precision": {"mode": "bf16"}}
_CHECKPOINTING = "compute", "activation_checkpointing"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run: a name for the table, and its settings."""

    name: str
    settings: TrainingSettings


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that differ in one setting.

    Attributes:
        name: what `--only` names.
        title: what they train, for the table.
        cases: the first is what the others are compared with.
    """

    name: str
    title: str
    cases: tuple[Case, ...]


def groups(device: Device, *, steps: int) -> list[Group]:
    """The groups of a device: of a CPU with small models, and only what a CPU can run.

    Args:
        device: that the ranks compute on.
        steps: number of steps that are measured.
    """
    images = _Workload(
        "ResNet-50, 224 x 224" if device == "gpu" else "ResNet-18, 16 x 16", _images(device), device, steps
    )
    tokens = _Workload(
        "transformer, 1024 tokens" if device == "gpu" else "transformer, 64 tokens", _tokens(device), device, steps
    )
    last = {**_BF16, "compute": {"channels_last": True}}
    on_both = [
        images.group("precision", ("precision", "mode"), ["fp32", "bf16", "fp16"]),
        images.group("memory-order", ("compute", "channels_last"), [False, True], _BF16),
        images.group("compile", ("compute", "compile"), ["off", "default"], last),
        images.group("copies", ("data", "pin_memory"), [False, True], {**last, "data": {"loader_workers": 2}}),
        images.group("determinism", ("run", "deterministic"), [False, True], last),
        tokens.group("attention", ("compute", "attention"), ["math", "efficient", "flash"], _BF16),
        tokens.group("activations", _CHECKPOINTING, ["off", "selective", "full"], _BF16),
    ]
    if device == "cpu":
        return on_both
    # Casts to 8-bit numbers pay off as part of other kernels.
    compiled = {"compute": {"compile": "default"}}
    return [*on_both, tokens.group("fp8", ("precision", "mode"), ["bf16", "fp8"], compiled)]


@dataclass(frozen=True)
class _Workload:
    title: str
    sections: Sections
    device: Device
    steps: int

    def group(self, name: str, key: tuple[str, str], values: Sequence[object], shared: Sections | None = None) -> Group:
        """The workload with each value of a setting that the device has, on top of settings that the cases share."""
        section, setting = key
        cases = tuple(
            Case(
                name=f"{section}.{setting}={value if not isinstance(value, bool) else str(value).lower()}",
                settings=self._settings(shared or {}, {section: {setting: value}}),
            )
            for value in values
            if not (self.device == "cpu" and value in {"fp16", "efficient"})
        )
        return Group(name=name, title=self.title, cases=cases)

    def _settings(self, *layers: Sections) -> TrainingSettings:
        total = WARM_UP_STEPS + self.steps
        common: Sections = {
            "run": {"deterministic": False},
            "loop": {"epochs": total, "max_steps": total, "evaluate_every": total},
            "scale": {"launcher": "plain", "workers": 1, "gpu": self.device == "gpu"},
            "tracking": {"enabled": False},
            "metrics": {"exporter": "none"},
            "checkpoint": {"every_steps": 10 * total},
        }
        merged: dict[str, dict[str, Any]] = {}
        for layer in (common, self.sections, *layers):
            for name, section in layer.items():
                merged[name] = {**merged.get(name, {}), **section}
        return TrainingSettings.model_validate(merged)


def _images(device: Device) -> Sections:
    size, batch = (224, 64) if device == "gpu" else (16, 4)
    options = {"kind": "images", "height": size, "width": size, "samples": 16 * batch, "evaluation_samples": batch}
    return {
        "model": {"name": "resnet50" if device == "gpu" else "resnet18"},
        "data": {"dataset": "synthetic", "options": options, "augment": False},
        "loop": {"global_batch": batch},
    }


def _tokens(device: Device) -> Sections:
    length, batch = (1024, 16) if device == "gpu" else (64, 2)
    size = {"width": 768, "layers": 12, "heads": 12} if device == "gpu" else {"width": 32, "layers": 2, "heads": 2}
    return {
        "model": {"name": "transformer", "options": size},
        "data": {
            "dataset": "synthetic_text",
            "options": {"length": length, "samples": 16 * batch, "evaluation_samples": batch},
        },
        "loop": {"global_batch": batch},
    }
