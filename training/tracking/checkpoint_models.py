"""Records a run's checkpoints as logged models of MLflow 3: where they are, what they hold, and what they scored.

MLflow gets no copy of their files. The models are external ones, and equal the checkpoints that are there when an attempt has ended, so
`checkpoint.keep_last` and `keep_best` bound their number.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from observability.line_file import read_lines
from observability.objective_metrics import ObjectiveInfo, ranked
from observability.runlog import FILE_NAME, Evaluated, Event, TrainingStarted, decode
from training.checkpoint.late_metrics import ranking_metrics
from training.checkpoint.manifest import Manifest
from training.checkpoint.store import FOLDER, folder_name, local_store
from training.tracking import payload
from training.tracking.client import mlflow
from training.tracking.point import Point

MODEL_TYPE = "checkpoint"
"""Type of the logged models; the model of a finished run, which MLflow has the files of, has another."""

BEST = "checkpoint.best"
"""Tag of the checkpoint with the best metric."""

_EXTERNAL = "mlflow.model.isExternal"
"""MLflow's tag of a model whose files it does not have."""

_MANIFEST_HASH = "checkpoint.manifest_sha256"


class CheckpointModels:
    """The logged models of one run's checkpoints.

    Args:
        client: of the store.
        run_directory: the run's folder.
        experiment_id, run_id: the MLflow run.
    """

    def __init__(self, client: mlflow.MlflowClient, run_directory: Path, *, experiment_id: str, run_id: str) -> None:
        self._client = client
        self._directory = run_directory
        self._experiment_id = experiment_id
        self._run_id = run_id

    def update(self) -> None:
        """Make the logged models equal the checkpoints; may be repeated, and interrupted at any time.

        Raises:
            Exception: one of `client.STORE_ERRORS`: the store is unavailable or rejects a request, or a manifest cannot be read.
        """
        manifests = {manifest.step: manifest for manifest in local_store(self._directory / FOLDER).manifests()}
        evaluations, objective = _read_log(self._directory, manifests)
        headline = objective.headline
        metrics = ranking_metrics(local_store(self._directory / FOLDER), headline.name)
        best = ranked(metrics, higher_is_better=headline.higher_is_better)[:1]
        tags = {step: self._tags(manifest, is_best=step in best) for step, manifest in manifests.items()}
        recorded: set[int] = set()
        for model in list(self._search()):
            step = next((step for step, wanted in tags.items() if _is_of(model, wanted)), None)
            if step is None or step in recorded:
                self._client.delete_logged_model(model.model_id)
            else:
                self._complete(model, step, tags[step], evaluations.get(step, []))
                recorded.add(step)
        for step in sorted(tags.keys() - recorded):
            model = self._client.create_logged_model(
                self._experiment_id, folder_name(step), self._run_id, tags[step], model_type=MODEL_TYPE
            )
            self._complete(model, step, tags[step], evaluations.get(step, []))

    def _complete(
        self, model: mlflow.entities.LoggedModel, step: int, tags: Mapping[str, str], points: Sequence[Point]
    ) -> None:
        """Add what a model lacks, because it is new or was left incomplete, or because there are other checkpoints now."""
        if changed := {key: value for key, value in tags.items() if model.tags.get(key) != value}:
            self._client.set_logged_model_tags(model.model_id, changed)
        if BEST in model.tags and BEST not in tags:
            self._client.delete_logged_model_tag(model.model_id, BEST)
        known = {metric.key for metric in model.metrics or ()}
        if metrics := [
            mlflow.entities.Metric(*point, model_id=model.model_id) for point in points if point.key not in known
        ]:
            self._client.log_batch(self._run_id, metrics=metrics)
        if model.status != mlflow.entities.LoggedModelStatus.READY:
            outputs = self._client.get_run(self._run_id).outputs
            if model.model_id not in {output.model_id for output in outputs.model_outputs}:
                self._client.log_outputs(self._run_id, [mlflow.entities.LoggedModelOutput(model.model_id, step)])
            self._client.finalize_logged_model(model.model_id, mlflow.entities.LoggedModelStatus.READY)

    def _tags(self, manifest: Manifest, *, is_best: bool) -> dict[str, str]:
        tags = {
            _EXTERNAL: "true",
            "checkpoint.path": str(self._directory.resolve() / FOLDER / folder_name(manifest.step)),
            "checkpoint.step": str(manifest.step),
            "checkpoint.bytes": str(manifest.total_bytes),
            "checkpoint.weights_sha256": manifest.weights_sha256,
            _MANIFEST_HASH: hashlib.sha256(manifest.encode()).hexdigest(),
        }
        return tags | ({BEST: "true"} if is_best else {})

    def _search(self) -> Iterator[mlflow.entities.LoggedModel]:
        """The run's logged models of this type."""
        token = None
        while True:
            page = self._client.search_logged_models(
                [self._experiment_id],
                f"source_run_id = '{self._run_id}' AND model_type = '{MODEL_TYPE}'",
                page_token=token,
            )
            yield from page
            token = page.token
            if not token:
                return


def _is_of(model: mlflow.entities.LoggedModel, tags: Mapping[str, str]) -> bool:
    """Whether a model is of the checkpoint with these tags, and not of one that another attempt has replaced."""
    return all(model.tags.get(key) == tags[key] for key in ("checkpoint.step", _MANIFEST_HASH))


def _read_log(run_directory: Path, manifests: Mapping[int, Manifest]) -> tuple[dict[int, list[Point]], ObjectiveInfo]:
    """The first evaluation of each split at the step of each checkpoint, which is the one that the run has, and the newest objective."""
    found: dict[int, dict[str, Point]] = {}
    objective: Mapping[str, object] = {}
    for event in _events(run_directory):
        match event:
            case TrainingStarted():
                objective = event.objective
            case Evaluated() if event.step in manifests:
                for point in payload.points(event):
                    if math.isnan(point.value):  # a logged model would show 0
                        continue
                    found.setdefault(event.step, {}).setdefault(point.key, point)
    return {step: list(points.values()) for step, points in found.items()}, ObjectiveInfo.of(objective)


def _events(run_directory: Path) -> Iterator[Event | None]:
    """The evaluations and starts of a log, without decoding its steps."""
    markers = tuple(b'{"kind":"' + event.kind.encode() + b'"' for event in (Evaluated, TrainingStarted))
    for line, _ in read_lines(run_directory / FILE_NAME):
        if line.startswith(markers):
            try:
                yield decode(line.decode())
            except ValueError:  # cut off by a full disk
                continue
