"""The options of interactive sessions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from infra.spec.command_line import argument, option
from training.options.cluster import ClusterOptions, DetachOptions


@dataclass(frozen=True, kw_only=True)
class SessionLimits:
    """When a session ends by itself, and what it holds until then."""

    gpus: int = option("GPUs of the session", 1, at_least=0)
    hours: float = option("hours after which it ends in any case", 8.0, metavar="H", at_least=0)


@dataclass(frozen=True, kw_only=True)
class SessionOptions(SessionLimits):
    """Options of `session`."""

    idle_minutes: float = option("minutes without use after which it ends", 30.0, metavar="M", at_least=0)
    usd_per_hour: float | None = option("price of its GPUs, for the cost at its end", metavar="USD")
    address: str = option("address of the Ray cluster", "auto")


@dataclass(frozen=True, kw_only=True)
class SessionNameOptions(ClusterOptions):
    """The session to work on."""

    TITLE: ClassVar = ClusterOptions.TITLE

    env: str = option("environment of the stack", ...)
    run: str | None = argument("name of the session, with or without `session-`")


@dataclass(frozen=True, kw_only=True)
class CodeOptions:
    """The code to work on."""

    TITLE: ClassVar = ClusterOptions.TITLE

    code: Path | None = option("folder of yours to keep equal to the session's code folder", metavar="FOLDER")


@dataclass(frozen=True, kw_only=True)
class NewSessionOptions(CodeOptions, SessionLimits, SessionNameOptions):
    """A session to start."""

    idle: str = option("time without use after which it ends, e.g. 45m or 2h", "30m", metavar="TIME")
    workers: int = option("worker pods of a session without GPUs", 1, at_least=1)
    cpus: int = option("cores of a worker pod of a session without GPUs", 4, at_least=1)
    group: str | None = option(
        "GPU node group, or several with commas, of which the queue takes the first with room (default: the cheapest that fits)"
    )
    gpu_model: str | None = option("GPU model, e.g. a10g, instead of a group: the queue chooses one", metavar="MODEL")
    spot: bool | None = option("with --gpu-model: allow spot nodes, after other capacity")
    priority: Literal["low", "normal", "high"] | None = option("priority in the queue (default: normal)")
    image: str | None = option("image of the pods, by digest (default: the release's)", metavar="REF")


@dataclass(frozen=True, kw_only=True)
class ClusterCommandOptions(DetachOptions, NewSessionOptions):
    """Options of `cluster`."""


@dataclass(frozen=True, kw_only=True)
class NotebookOptions(NewSessionOptions):
    """Options of `notebook`."""

    env: str | None = option("environment of the stack")  # type: ignore[assignment] # not needed on this machine
    run: str | None = argument(
        "with --env name of the session, with or without `session-`; without it name of the notebook"
    )
    port: int = option("local port (default: 8888, or another that is free)", 0, at_least=0, at_most=65535)


@dataclass(frozen=True, kw_only=True)
class ShellOptions(CodeOptions, SessionNameOptions):
    """Options of `shell`."""

    head: bool = option("open it in the head, which has no GPU", default=False)


@dataclass(frozen=True, kw_only=True)
class ForwardOptions(CodeOptions, SessionNameOptions):
    """Options of `forward`."""

    port: int = option("local port", 8265, at_least=1, at_most=65535)
