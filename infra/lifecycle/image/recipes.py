"""Our own images, and the files of the repository that each is built from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

ImageName = Literal["trainer", "session", "mlflow"]
Variant = Literal["cuda", "cpu"]

IMAGES: tuple[ImageName, ...] = get_args(ImageName)
VARIANTS: tuple[Variant, ...] = get_args(Variant)
SESSION_LOCK = "requirements-session.lock"
"""What the image of sessions has in addition to the trainer's: JupyterLab."""

RELEASED: Variant = "cuda"
"""The variant of the trainer, and of a session's image, that the release pins; it runs on nodes without GPUs too."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How an image is built.

    Attributes:
        dockerfile: path relative to the repository.
        lock: lock file of its Python packages.
        context: other paths of the repository in the build context; .dockerignore excludes everything else.
        runtime: paths of the build context that the stage `runtime` takes, besides the lock.
        room: most that building that stage writes to the engine's store and cache, in bytes.
        unused: list of what the build removes from the installed packages; empty if it removes nothing.
        added_locks: lock files of packages that are installed after those of `lock`.
        has_variants: whether it is built for CUDA or for CPUs.
    """

    dockerfile: str
    lock: str
    context: tuple[str, ...]
    runtime: tuple[str, ...] = ()
    room: int = 0
    unused: str = ""
    added_locks: tuple[str, ...] = ()
    has_variants: bool = False


_COMMON = ("requirements-bootstrap.lock", ".dockerignore")
_SHARED = (
    "infra/__init__.py",
    *(
        f"infra/spec/{name}.py"
        for name in (
            "__init__",
            "cluster_names",
            "command_line",
            "compute_capability",
            "errors",
            "matching",
            "node_labels",
            "output",
            "section",
            "signals",
            "yaml_text",
        )
    ),
    "infra/spec/variables",
    *(f"infra/packages/{name}.py" for name in ("__init__", "lock", "overlay", "requirements")),
)
"""Modules of the stack that the trainer imports."""

_DATA_SYNC = (
    "platform_charts/__init__.py",
    "platform_charts/images/__init__.py",
    "platform_charts/images/data_sync",
)
"""The program that copies datasets, as the trainer runs it."""

_REAPER = (
    *("infra/__init__.py", "infra/spec", "infra/kube/__init__.py", "infra/kube/aws_errors.py"),
    *(
        f"infra/lifecycle/{name}.py"
        for name in (
            "__init__",
            "__main__",
            "account/__init__",
            "account/aws",
            "account/caller",
            "cli",
            "options",
            "show",
            "commands/__init__",
            "commands/reaper",
        )
    ),
    "infra/lifecycle/leftovers",
)
"""The command that removes expired test clusters, without the stack."""

_TRAINER = Recipe(
    dockerfile="training/image/Dockerfile",
    lock="requirements-image.lock",
    added_locks=("requirements-deepspeed.lock",),
    has_variants=True,
    context=(
        *(*_COMMON, *_SHARED, *_DATA_SYNC),
        *("requirements-deepspeed.lock", SESSION_LOCK, ".make/environment", "pyproject.toml"),
        *("training", "tune", "observability"),
    ),
    runtime=(
        *("requirements-deepspeed.lock", "requirements-bootstrap.lock", ".make/environment"),
        *("training/image/remove_unused.py", "training/image/unused.txt"),
    ),
    room=28 * 10**9,
    unused="training/image/unused.txt",
)

RECIPES: Mapping[ImageName, Recipe] = {
    "trainer": _TRAINER,
    "session": replace(_TRAINER, added_locks=(*_TRAINER.added_locks, SESSION_LOCK)),
    "mlflow": Recipe(
        dockerfile="platform_charts/images/mlflow_server/Dockerfile",
        lock="platform_charts/images/mlflow_server/requirements.lock",
        context=(
            *_COMMON,
            "platform_charts/images/mlflow_server",
            "platform_charts/images/node_gate",
            "platform_charts/images/job_progress",
            "platform_charts/images/job_recorder",
            "platform_charts/images/job_sizer",
            "platform_charts/images/alert_webhook",
            "platform_charts/images/job_schedule",
            "platform_charts/images/data_sync",
            "platform_charts/images/sso_proxy",
            *_REAPER,
        ),
        runtime=("requirements-bootstrap.lock",),
        room=4 * 10**9,
    ),
}
