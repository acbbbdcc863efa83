"""The index of checkpoints: what MLflow knows of each, from the tags that the trainer gives their logged models.

Their files are on the shared file system, which has backups of its own. The index says which checkpoints there were, where, and the
sha256 of each manifest, which in turn has the sha256 of every file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .lines import Line

_NUMBER = re.compile("[0-9]{1,18}")
_CHECKPOINTS = """
SELECT e.workspace, m.source_run_id, m.model_id, jsonb_object_agg(t.tag_key, t.tag_value)
FROM logged_models m JOIN experiments e USING (experiment_id) JOIN logged_model_tags t USING (model_id)
WHERE m.lifecycle_stage = 'active' AND t.tag_key LIKE 'checkpoint.%'
GROUP BY e.workspace, m.source_run_id, m.model_id
HAVING bool_or(t.tag_key = 'checkpoint.manifest_sha256')
ORDER BY m.model_id COLLATE "C"
"""


def checkpoints(cursor: Any) -> Iterator[Line]:  # noqa: ANN401 - psycopg2 has no types
    """The checkpoints that the database of runs knows, some at a time.

    Users can set tags to anything: a step or size that is no number is 0.

    Args:
        cursor: of a `snapshot`.

    Raises:
        psycopg2.Error: of the server.
    """
    # A named cursor is one of the server: without one, the client would hold all rows.
    with cursor.connection.cursor("checkpoints") as rows:
        rows.execute(_CHECKPOINTS)
        for workspace, run, model, tags in rows:
            yield {
                "workspace": workspace,
                "run": run,
                "model": model,
                "path": tags.get("checkpoint.path"),
                "step": _number(tags.get("checkpoint.step", "")),
                "bytes": _number(tags.get("checkpoint.bytes", "")),
                "manifest_sha256": tags["checkpoint.manifest_sha256"],
            }


def _number(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else 0
