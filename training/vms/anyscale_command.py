"""`anyscale`: writes the folder of a job for Anyscale."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from infra.spec.manifest_yaml import write_document
from infra.spec.output import writing
from infra.spec.release_rules import ROOT
from training.cluster.code_packages import require_image
from training.cluster.context import ClusterContext, read_target, team_named
from training.code.given import configurations, given_code, importable
from training.config.load import load_settings, render
from training.errors import ExitStatus
from training.options.vms import AnyscaleOptions
from training.vms.anyscale import AnyscaleJob, place_of, render_compute, render_job
from training.vms.clusters import NodeRange
from training.vms.place import CODE_FILE, SETTINGS_FILE
from training.vms.settings import for_machines

_FOLDER = ROOT / ".local" / "anyscale"
_WIDTH = 120


def anyscale(options: AnyscaleOptions) -> ExitStatus:
    """Render settings, machines and job, and write them with the code of the user's own."""
    archive = given_code(options.code)
    with importable(archive, with_packages=False) as code:
        config = configurations(options.config, code)
        written = load_settings(config, overrides=options.set, flags=options.flags(), environment={})
    workers = NodeRange.parse(options.workers or "0-1")
    target = read_target(options.env, file=options.outputs, environment=os.environ)
    team = team_named(target.outputs, options.team)
    require_image(options.code, ClusterContext(env=options.env, target=target, team=team), image=None)
    place = place_of(target, team, tracking_uri=options.tracking_uri)
    settings = for_machines(written, place, now=datetime.now(UTC))
    assert settings.run.name is not None, "for_machines names the run"
    job = AnyscaleJob(
        name=settings.run.name,
        cloud=options.cloud,
        workers=workers,
        group=options.group,
        is_spot=options.spot,
        has_code=archive is not None,
    )
    compute = render_compute(job, target)
    documents: dict[str, dict[str, Any]] = {
        "compute.yaml": compute,
        "job.yaml": render_job(job, target, team, compute=compute),
    }
    folder = options.out or _FOLDER / job.name
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SETTINGS_FILE).write_text(render(settings), encoding="utf-8")
        if archive is not None:
            (folder / CODE_FILE).write_bytes(archive.data)
        for name, document in documents.items():
            text = write_document(document, width=_WIDTH)
            (folder / name).write_text(text, encoding="utf-8")
    print(f"{folder}: submit it there with anyscale job submit -f job.yaml")
    return ExitStatus.DONE
