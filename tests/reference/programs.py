"""The Python programs of the repository, and what starts those that users do not."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from infra.spec.command_line import CommandLine


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program with options of its own.

    Attributes:
        module: what `python -m` runs; for a program of an image, the module here.
        parser: `module:function` that makes its parser.
    """

    module: str
    parser: str

    def make(self) -> argparse.ArgumentParser:
        """Its parser."""
        module, _, name = self.parser.partition(":")
        make: Callable[[], argparse.ArgumentParser] = getattr(import_module(module), name)
        return make()


def _own(module: str) -> Program:
    return Program(module=module, parser=f"{module}.__main__:parser")


COMMAND_LINES: Final[Mapping[str, str]] = {
    "training": "training.cli",
    "tune": "tune.cli",
    "infra.lifecycle": "infra.lifecycle.cli",
    "observability.dashboards": "observability.dashboards.__main__",
    "training.conformance": "training.conformance.__main__",
}
"""Module of the `CommandLine` of each program that has commands."""

BENCHMARKS: Final = (
    Program(module="observability.benchmarks", parser="observability.benchmarks.options:comparisons"),
    _own("observability.benchmarks.faults"),
    _own("observability.benchmarks.gpu"),
    Program(module="observability.benchmarks.fleet", parser="observability.benchmarks.options:fleet"),
    _own("observability.benchmarks.gate"),
    Program(module="observability.benchmarks.gate.power", parser="observability.benchmarks.options:power"),
    Program(module="observability.benchmarks.mlflow_history", parser="observability.benchmarks.options:mlflow_history"),
)
"""Programs that measure."""

TOOLS: Final = (
    Program(module="training.checkpoint.weights", parser="training.checkpoint.weights_options:parser"),
    Program(module="training.code.deliver", parser="training.code.deliver:parser"),
)
"""Other programs of the trainer."""

IMAGES: Final = tuple(
    _own(f"platform_charts.images.{name}")
    for name in (
        "alert_webhook",
        "data_sync",
        "job_progress",
        "job_recorder",
        "job_schedule",
        "job_sizer",
        "mlflow_server",
        "node_gate",
        "sso_proxy",
    )
)
"""Programs of our images; their pods start them under the last part of the name."""

WRITERS: Final[Mapping[str, str]] = {
    "infra.lifecycle.leftovers.policy": "`infra/spec/reaper_actions.json`, the permissions of the reaper",
    "infra.spec.settings.schema": "`infra/environments/schema.json`",
    "observability.alerts": "the alert rules that the stack delivers",
    "observability.metrics.dcgm_counters": "the counters that the DCGM exporter exports",
    "training.config.json_schema": "`training/configs/schema.json`",
    "training.roofline": "the table of docs/GPU_OPTIMIZATION.md",
}
"""Programs without options that write a file of the repository, and what they write."""

INTERNAL: Final[Mapping[str, str]] = {
    "infra": "Pulumi, for `pulumi up`",
    "infra.lifecycle.sandbox.keeper": "`make sandbox`",
    "infra.lifecycle.sandbox.node.images": "a real node of a sandbox",
    "infra.lifecycle.sandbox.node.namespace": "a real node of a sandbox",
    "infra.lifecycle.sandbox.node.policies.enforcer": "a real node of a sandbox",
    "infra.lifecycle.sandbox.node.policies.plugin": "containerd on a real node of a sandbox",
    "infra.lifecycle.sandbox.services.prometheus": "a sandbox with real nodes",
    "infra.policy": "Pulumi, as policy pack",
    "observability.benchmarks.bare_ddp": "`make bench`",
    "observability.benchmarks.communication.rank": '`make bench ARGS="--only communication"`',
    "observability.benchmarks.faults.ray_fault_tolerant": "`make bench-faults`",
    "observability.benchmarks.gpu.all_reduce": "`make bench-gpu`",
    "observability.benchmarks.gpu.rank": "`make bench-gpu`",
    "observability.benchmarks.ray_documented": "`make bench`",
    "observability.benchmarks.reading_run": "`make bench`",
    "observability.benchmarks.tune_documented": "`make bench`",
    "observability.benchmarks.unmeasured_rank": "`make bench`",
    "training.code.agent": "the synchronization of a session's code, in its pod",
    "training.image.remove_unused": "the build of the trainer image",
    "training.interactive.notebook": "`make notebook`, in the session's pod",
    "training.launch.rank": "the driver, for each rank under torchrun",
    "training.launch.ray_worker": "Ray, for each rank under Ray",
    "training.tracking.follow": "the driver, to deliver a run to MLflow",
    "training.tracking.model": "the driver, to register a model",
    "training.validation": "rank 0, to evaluate beside the training",
    "tune.tracking.follow": "the driver of a search, to deliver it to MLflow",
}
"""Programs that only the platform starts, and what does."""


def command_line(program: str) -> CommandLine:
    """The command line of a program of `COMMAND_LINES`."""
    found: CommandLine = import_module(COMMAND_LINES[program]).COMMANDS
    return found
