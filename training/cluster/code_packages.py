"""Whether the image of a job has what the code requires: asked before nodes start, not when their GPUs wait."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra.packages.derived import image_markers, image_platform, shortcomings
from infra.packages.lock import trainer_lock
from infra.packages.requirements import REQUIREMENTS_FILE, missing_packages, read_requirements
from infra.spec.errors import NoAnswerError, RefusedError
from infra.spec.manifest import Manifest
from observability.quantities import listed
from platform_charts.jobs.rayjob import IMAGE_ANNOTATION
from training.cluster.context import ClusterContext
from training.cluster.registry import read_annotations
from training.code.archive import file_names, read_archive
from training.code.given import files_of
from training.code.identity import is_archive
from training.code.selection import select

_COMPILED = re.compile(r"(?P<module>[^.]+)\.cpython-3(?P<minor>\d+)[a-z]*(-[^.]*)?\.so")


def require_image(code: Path | None, context: ClusterContext, *, image: str | None) -> None:
    """Refuse code that needs more packages than the release's image has, if no other image is given; asks no registry.

    Warns of modules that were compiled for another Python only than the image's.

    Args:
        code: the code folder, or an archive of it; None without.
        context: the stack.
        image: the image that the job names.

    Raises:
        SettingsError: requirements.txt cannot be read, or contradicts the versions of the image.
        RefusedError: names every package that the image lacks.
    """
    missing = _missing(code, context)
    if image is not None:
        return
    if code is not None:
        _warn_of_other_pythons(code, image_markers(context.target.release)["python_version"])
    if not missing:
        return
    lines = "".join(f"\n  {one}" for one in missing)
    raise RefusedError(
        f"the trainer image lacks packages of {REQUIREMENTS_FILE}:{lines}",
        remedy=f"make image FROM={code} ENV={context.env}, and name the image that it prints: IMAGE=…",
    )


def check_derived(job: Manifest, code: Path | None, context: ClusterContext) -> None:
    """Ask the registry whether a job's own image was made for this release and this code; warns if it does not answer.

    Args:
        job: the RayJob.
        code: the code folder, or an archive of it; None without.
        context: the stack.

    Raises:
        RefusedError: it was not; names every difference.
    """
    image = job["metadata"].get("annotations", {}).get(IMAGE_ANNOTATION)
    release = context.target.release
    ours = tuple(f"@{release.images[name].digest}" for name in ("trainer", "session"))
    if image is None or image.endswith(ours) or context.target.outputs.is_recorded:
        return
    try:
        recorded = read_annotations(image)
    except NoAnswerError as error:
        print(f"warning: what image {image} has was not checked: {error}", file=sys.stderr)
        return
    found = "".join(f"\n  {line}" for line in shortcomings(recorded, _missing(code, context), release))
    if found:
        raise RefusedError(
            f"image {image} does not fit the job:{found}",
            remedy=f"make image FROM={code or 'folder'} ENV={context.env}, and name the image that it prints: IMAGE=…",
        )


def _missing(code: Path | None, context: ClusterContext) -> tuple[Requirement, ...]:
    """What the release's image lacks. An extra of a package that it has is left to the check in the pod."""
    if code is None:
        return ()
    platform = image_platform(context.target.release, trainer_lock())
    with files_of(read_archive(code)) if is_archive(code) else nullcontext(code) as folder:
        requirements = read_requirements(folder, environment=image_markers(context.target.release))
    missing = missing_packages(code, requirements, platform)
    return tuple(one for one in missing if platform.installed(canonicalize_name(one.name)) is None)


def _warn_of_other_pythons(code: Path, python: str) -> None:
    """Name modules that the image's Python, e.g. 3.11, does not import: compiled files have a tag in their names (PEP 3149)."""
    files = file_names(read_archive(code)) if is_archive(code) else select(code).files
    pythons: dict[str, set[str]] = {}
    for file in files:
        if match := _COMPILED.fullmatch(file):
            pythons.setdefault(match["module"], set()).add(f"3.{match['minor']}")
    for module, others in sorted(pythons.items()):
        if python not in others and f"{module}.py" not in files:
            print(
                f"warning: {module} of {code} is compiled for Python {listed(sorted(others))}, and the trainer image has {python}, which "
                f"cannot import it; build it with Python {python}, or into an image of your own (IMAGE=…)",
                file=sys.stderr,
            )
