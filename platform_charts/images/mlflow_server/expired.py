"""Policy: which deleted runs, logged models and experiments are deleted for good, as queries on MLflow's database.

MLflow only marks what a user deletes, so that it can be restored. `mlflow gc` deletes what was marked long ago, but also the files that
versions of registered models still refer to, and takes no list of exceptions. Here, whatever a version refers to is kept:

* a run that was deleted, unless a version is of this run or of files in its folder;
* a logged model that was deleted, or whose experiment was, or that is external and whose run was, unless it is the source of a version;
* an experiment that was deleted, unless it holds a run or a logged model that is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["run", "logged model", "experiment"]


@dataclass(frozen=True, kw_only=True)
class Expired:
    """Something that is deleted for good.

    Attributes:
        kind: what it is.
        identifier: its ID.
        workspace: its workspace.
        experiment: ID of its experiment.
        artifacts: URI of its files; empty for an experiment.
    """

    kind: Kind
    identifier: str
    workspace: str
    experiment: int
    artifacts: str = ""


_VERSION = "SELECT FROM model_versions v WHERE v.current_stage <> 'Deleted_Internal'"
"""MLflow keeps a row of a deleted version."""

_RUNS = f"""
SELECT r.run_uuid, e.workspace, r.experiment_id, r.artifact_uri
FROM runs r JOIN experiments e USING (experiment_id)
WHERE r.lifecycle_stage = 'deleted' AND r.deleted_time < %(before)s
  AND NOT EXISTS ({_VERSION} AND (v.run_id = r.run_uuid
    OR strpos(v.source, r.run_uuid) > 0 OR strpos(v.storage_location, r.run_uuid) > 0))
"""  # noqa: S608 - constants

_MODELS = f"""
SELECT m.model_id, e.workspace, m.experiment_id, m.artifact_location
FROM logged_models m JOIN experiments e USING (experiment_id) LEFT JOIN runs r ON r.run_uuid = m.source_run_id
WHERE (m.lifecycle_stage = 'deleted' AND m.last_updated_timestamp_ms < %(before)s
    OR e.lifecycle_stage = 'deleted' AND e.last_update_time < %(before)s
    OR r.lifecycle_stage = 'deleted' AND r.deleted_time < %(before)s AND EXISTS (
      SELECT FROM logged_model_tags t
      WHERE t.model_id = m.model_id AND t.tag_key = 'mlflow.model.isExternal' AND lower(t.tag_value) = 'true'))
  AND NOT EXISTS ({_VERSION} AND (strpos(v.source, m.model_id) > 0 OR strpos(v.storage_location, m.model_id) > 0))
"""  # noqa: S608 - constants

_EXPERIMENTS = """
SELECT e.experiment_id, e.workspace,
  (SELECT count(*) FROM runs r WHERE r.experiment_id = e.experiment_id),
  (SELECT count(*) FROM logged_models m WHERE m.experiment_id = e.experiment_id)
FROM experiments e WHERE e.lifecycle_stage = 'deleted' AND e.last_update_time < %(before)s
"""


def find_expired(cursor: Any, *, before: int) -> list[Expired]:  # noqa: ANN401 - psycopg2 has no types
    """What was deleted before a time, in the order in which it can be deleted.

    Args:
        cursor: of MLflow's database.
        before: milliseconds since the epoch.
    """
    found = [*_items(cursor, "run", _RUNS, before=before), *_items(cursor, "logged model", _MODELS, before=before)]
    gone = Counter((item.kind, item.experiment) for item in found)
    cursor.execute(_EXPERIMENTS, {"before": before})
    for experiment, workspace, runs, models in cursor.fetchall():
        if (runs, models) == (gone["run", experiment], gone["logged model", experiment]):
            found.append(
                Expired(kind="experiment", identifier=str(experiment), workspace=workspace, experiment=experiment)
            )
    return found


def _items(cursor: Any, kind: Kind, query: str, *, before: int) -> Iterator[Expired]:  # noqa: ANN401
    cursor.execute(query, {"before": before})
    for identifier, workspace, experiment, artifacts in cursor.fetchall():
        yield Expired(
            kind=kind, identifier=identifier, workspace=workspace, experiment=experiment, artifacts=artifacts or ""
        )
