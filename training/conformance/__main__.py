"""`python -m training.conformance`: the program of the suite's job, and that of its ranks."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from infra.spec.command_line import CommandLine, option
from training.conformance import program
from training.conformance.program import JobOptions
from training.errors import ExitStatus
from training.script.variables import OUTPUT_VARIABLE

COMMANDS = CommandLine(
    "python -m training.conformance",
    "Measure what only the pods of a job can see; `make conformance ENV=…` submits the job and judges.",
    variables={OUTPUT_VARIABLE: "folder that the ranks share"},
)


@dataclass(frozen=True, kw_only=True)
class FabricOptions:
    """Options of `fabric`."""

    gpus: bool = option("a GPU for each rank", default=False)
    size_bytes: int | None = option("size of the buffer (default: 1 GiB on GPUs, 16 MiB on CPUs)", at_least=4)


@COMMANDS.command("programs")
def job(options: JobOptions) -> ExitStatus:
    """Run all parts, and print what each has found."""
    return program.run(options)


@COMMANDS.command("programs")
def fabric(options: FabricOptions) -> ExitStatus:
    """Measure an all-reduce and read a shared file, as one of torchrun's ranks."""
    from training.conformance.fabric import run  # noqa: PLC0415 - imports torch

    run(Path(os.environ[OUTPUT_VARIABLE]), gpus=options.gpus, size_bytes=options.size_bytes)
    return ExitStatus.DONE


if __name__ == "__main__":
    sys.exit(COMMANDS.main())
