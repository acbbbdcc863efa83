"""What is compared: a table of named settings, and the run that each of them changes.

A case is a line of `CASES`. The first case with as many ranks on a host is what it is compared with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from infra.spec.section import nearest
from training.config.schema import TrainingSettings
from training.errors import SettingsError

WARM_UP_STEPS: Final = 4
"""Steps before the measurement: PowerSGD sends whole gradients in two of them, and TCP finds the rate of its connections."""

MEASURED_STEPS: Final = 8
PROFILED_STEPS: Final = 4
"""Steps at the end of a run, in which the profiler records; the step before them starts it."""

STEPS: Final = WARM_UP_STEPS + MEASURED_STEPS + 1 + PROFILED_STEPS
BATCH: Final = 1024
"""Samples of a step, over all ranks."""

_ACCUMULATION: Final = 4
_FEATURES: Final = 320
_HIDDEN: Final = (320, 320, 320, 320)


@dataclass(frozen=True)
class Case:
    """Settings that are measured.

    Attributes:
        name: for `--cases` and the table.
        sections: what they change, by section.
        ranks_per_host: ranks of each host; such cases are measured together.
        reduced_per_step: how often a step reduces what `training.communication.wire` computes: 1/8 if the ranks average every 8 steps.
        sends_weights: after a step each weight goes from the rank that has updated it to all others.
    """

    name: str
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ranks_per_host: int = 1
    reduced_per_step: float = 1.0
    sends_weights: bool = False

    @property
    def changes(self) -> str:
        """What it changes, for people: `communication.hook=powersgd communication.rank=2`."""
        return " ".join(
            f"{section}.{key}={value}" for section, values in self.sections.items() for key, value in values.items()
        )

    def settings(self, *, hosts: int) -> TrainingSettings:
        """The run on so many hosts: a perceptron with four layers of equal size, whose gradients are 1.7 MB."""
        return TrainingSettings.model_validate(_merged(_base(hosts, self.ranks_per_host), self.sections))


def _local(steps: int, **options: object) -> Mapping[str, Mapping[str, Any]]:
    """The ranks train alone from the first step on, so that the measured steps are whole periods."""
    return {"communication": {"local_steps": steps, "start_step": 0, **options}}


def _hook(hook: str, **options: object) -> Mapping[str, Mapping[str, Any]]:
    return {"communication": {"hook": hook, **options}}


CASES: Final = (
    Case("plain"),
    Case("fp16", _hook("fp16")),
    Case("bf16", _hook("bf16")),
    Case("powersgd-1", _hook("powersgd", rank=1, start_step=2)),
    Case("powersgd-2", _hook("powersgd", rank=2, start_step=2)),
    Case("powersgd-4", _hook("powersgd", rank=4, start_step=2)),
    Case("one-bucket", {"communication": {"bucket_megabytes": 25}}),
    Case("small-buckets", {"communication": {"bucket_megabytes": 0.25}}),
    Case("accumulation-4", {"loop": {"accumulation": _ACCUMULATION, "global_batch": _ACCUMULATION * BATCH}}),
    Case("local-sgd-4", _local(4), reduced_per_step=1 / 4),
    Case("diloco-4", _local(4, outer_optimizer="nesterov"), reduced_per_step=1 / 4),
    Case("sharded-optimizer", {"communication": {"shard_optimizer": True}}, sends_weights=True),
    Case("plain-2-per-host", ranks_per_host=2),
    # Of 2 ranks on each of 4 hosts: two rings of 4 ranks for half a gradient each, 2 x 3/4, in place of one of 8 for all of it, 2 x 7/8.
    Case("hierarchical", {"communication": {"hierarchical": True}}, ranks_per_host=2, reduced_per_step=6 / 7),
)
"""The cases by name. A new one is a line; one with another number of ranks on a host also needs a plain one to be compared with."""


def chosen(names: Sequence[str] | None, cases: Sequence[Case] = CASES) -> list[list[Case]]:
    """The cases with these names, or all, in groups of equal ranks on a host; each begins with the one that it is compared with.

    Raises:
        SettingsError: there is no such case.
    """
    known = {case.name: case for case in cases}
    for name in names or ():
        if name not in known:
            raise SettingsError(f"--cases {name}: no such case", remedy=nearest(name, known))
    groups: defaultdict[int, list[Case]] = defaultdict(list)
    for case in cases:
        if names is None or case.name in names or is_baseline(case, cases):
            groups[case.ranks_per_host].append(case)
    return [group for group in groups.values() if names is None or any(case.name in names for case in group)]


def is_baseline(case: Case, cases: Sequence[Case] = CASES) -> bool:
    """Whether the others with as many ranks on a host are compared with it."""
    return case is next(one for one in cases if one.ranks_per_host == case.ranks_per_host)


def _base(hosts: int, ranks_per_host: int) -> dict[str, dict[str, Any]]:
    return {
        "model": {"name": "mlp", "options": {"hidden": list(_HIDDEN)}},
        "data": {
            "dataset": "synthetic",
            "augment": False,
            # One epoch, however much a case accumulates.
            "options": {
                "features": _FEATURES,
                "samples": _ACCUMULATION * BATCH * STEPS,
                "evaluation_samples": BATCH,
            },
        },
        "loop": {"epochs": STEPS, "max_steps": STEPS, "evaluate_every": STEPS, "global_batch": BATCH},
        "scale": {
            "launcher": "torchrun",
            "workers": hosts * ranks_per_host,
            "nodes": hosts,
            "rendezvous": "unused:1",  # torchrun is started without the driver
        },
        "tracking": {"enabled": False},
        "metrics": {"exporter": "none"},
        "checkpoint": {"every_steps": 10 * STEPS},
        "profile": {"start_step": STEPS - PROFILED_STEPS + 1, "steps": PROFILED_STEPS},
    }


def _merged(base: dict[str, dict[str, Any]], changes: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {**base, **{section: {**base.get(section, {}), **values} for section, values in changes.items()}}
