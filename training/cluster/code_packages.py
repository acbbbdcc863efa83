"""Whether the image of a job has what the code requires: asked before nodes start, not when their GPUs wait."""

from __future__ import annotations

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
from platform_charts.jobs.rayjob import IMAGE_ANNOTATION
from training.cluster.context import ClusterContext
from training.cluster.registry import read_annotations
from training.code.archive import read_archive
from training.code.given import files_of
from training.code.identity import is_archive


def require_image(code: Path | None, context: ClusterContext, *, image: str | None) -> None:
    """Refuse code that needs more packages than the release's image has, if no other image is given; asks no registry.

    Args:
        code: the code folder, or an archive of it; None without.
        context: the stack.
        image: the image that the job names.

    Raises:
        SettingsError: requirements.txt cannot be read, or contradicts the versions of the image.
        RefusedError: names every package that the image lacks.
    """
    missing = _missing(code, context)
    if image is not None or not missing:
        return
    listed = "".join(f"\n  {one}" for one in missing)
    raise RefusedError(
        f"the trainer image lacks packages of {REQUIREMENTS_FILE}:{listed}",
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
    if image is None or image.endswith(f"@{release.images['trainer'].digest}") or context.target.outputs.is_recorded:
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
    platform = image_platform(trainer_lock())
    with files_of(read_archive(code)) if is_archive(code) else nullcontext(code) as folder:
        requirements = read_requirements(folder, environment=image_markers(context.target.release))
    missing = missing_packages(code, requirements, platform)
    return tuple(one for one in missing if platform.installed(canonicalize_name(one.name)) is None)
