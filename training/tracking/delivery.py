"""Delivers a run's event log to MLflow from a cursor on. Delivery is idempotent, because the cursor lags after a crash.

A SQL store keeps one row per metric key, step, timestamp and value. Parameters, tags, status and artifacts are set, not appended. A tag
identifies the run, and the hash of its weights the registered model version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from observability.goodput import GoodputLedger
from observability.line_file import read_lines
from observability.runlog import (
    FILE_NAME,
    CheckpointCommitted,
    Evaluated,
    Event,
    Phase,
    Restored,
    RunEnded,
    RunLogReader,
    RunStarted,
    Step,
    TrainingStarted,
    decode,
)
from training.code.identity import identity_file
from training.config.load import render
from training.config.schema import TrainingSettings
from training.tracking import payload, system
from training.tracking.batch import Batch
from training.tracking.checkpoint_models import CheckpointModels
from training.tracking.client import (
    STORE_ERRORS,
    MlflowException,
    connect,
    mlflow,
    server_version,
    summarize,
    upload_timeout,
)
from training.tracking.creation import get_or_create_experiment, get_or_create_run
from training.tracking.locations import registered_model, tracking_uri
from training.tracking.point import Point
from training.tracking.registration import ModelRegistration
from training.tracking.state import StoreUnavailableError, TrackingState
from training.tracking.thinning import Series, Thinner

MAX_METRICS = 1000
"""MLflow's limit of metrics per request."""

MAX_PARAMETERS = 100
"""MLflow's limit of parameters per request."""

_STATUS = {"done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
_NO_TAGS: Mapping[str, str] = {}


def last_start(run_directory: Path) -> RunStarted | None:
    """The newest `RunStarted` event of a run; None if it has none or the run does not exist."""
    marker = b'{"kind":"' + RunStarted.kind.encode() + b'"'
    newest = None
    for line, _ in read_lines(run_directory / FILE_NAME):
        if line.startswith(marker):
            with suppress(ValueError):  # cut off by a full disk
                newest = decode(line.decode())
    assert newest is None or isinstance(newest, RunStarted)
    return newest


class Delivery:
    """Delivers one run. The caller holds the run's lock (`state.delivery_lock`)."""

    def __init__(
        self,
        run_directory: Path,
        started: RunStarted,
        *,
        tags: Mapping[str, str] = _NO_TAGS,
        registers_model: bool = True,
    ) -> None:
        """Prepare the delivery of a run.

        Args:
            run_directory: its folder.
            started: its newest start.
            tags: of the MLflow run, besides those of every run.
            registers_model: whether its checkpoints become logged models and, if it is done, its weights a version of its registered model.
        """
        self._tags = tags
        self._registers_model = registers_model
        self._directory = run_directory
        self._started = started
        self._settings = TrainingSettings.model_validate(started.settings)
        self._uri = tracking_uri(self._settings.tracking, run_directory)
        state = TrackingState.load(run_directory)
        # A copy that continues gets an MLflow run of its own, with the whole log: the original may continue too.
        self.state = state if state is not None and state.belongs_to(run_directory) else self._new_state()
        # From the first event of the log, and not from the cursor.
        self._goodput, self._goodput_log = GoodputLedger(), RunLogReader(run_directory)
        self._connected: mlflow.MlflowClient | None = None
        self._registration: ModelRegistration | None = None

    def close(self) -> None:
        """End the process that was to register the model, if the run ended without one."""
        if self._registration is not None:
            self._registration.cancel()
            self._registration = None

    def deliver(self, *, is_finished: bool) -> None:
        """Deliver all events that have not been delivered yet.

        Args:
            is_finished: no process writes to the run any more; deliver also its end, with model, report and status.

        Raises:
            StoreUnavailableError: the store is unavailable or rejects a request; the state keeps what was delivered.
            SettingsError: the run's model can no longer be built.
        """
        try:
            self._open_run()
            if not is_finished:
                self._mark_running()
            self._deliver_system_metrics(is_finished=is_finished)
            self._deliver_log(is_finished=is_finished)
            if is_finished and self.state.status == "RUNNING":
                self._deliver_checkpoints()
                # The driver was killed before it logged the end of the run. A resume sets the status to RUNNING again.
                self._set_status("KILLED", at=(self._directory / FILE_NAME).stat().st_mtime)
        except (*STORE_ERRORS, StoreUnavailableError) as error:
            self.record_problem(summarize(error))
            raise StoreUnavailableError(summarize(error)) from error
        self._update_state(problem="")

    def mark_failed(self, message: str, *, at: float) -> None:
        """Give a run that was delivered, and did not end by itself, the status of a failure.

        Args:
            message: why it failed.
            at: when, in seconds of Unix time.

        Raises:
            Exception: one of `client.STORE_ERRORS`: the store is unavailable or rejects a request.
        """
        if self.state.status != "FAILED":
            self._set_tags({"error": payload.truncate(message)})
            self._set_status("FAILED", at=at)

    def _deliver_log(self, *, is_finished: bool) -> None:
        self._follow_goodput()
        reader = RunLogReader(self._directory, offset=self.state.offset)
        batch = Batch(self.state)
        for event in reader.read_new():  # streams: a run may have millions of steps
            if isinstance(event, Step | Evaluated | CheckpointCommitted):
                if len(batch.points) >= MAX_METRICS:
                    self._flush(batch)
                batch.add(event, reader.offset)
                continue
            if isinstance(event, RunStarted | RunEnded):
                batch.end_attempt(dense=self._settings.tracking.dense_points)
            self._flush(batch)
            if not isinstance(event, RunEnded):
                self._deliver_run_event(event)
            elif not self._has_restarted(after=reader.offset):
                if not is_finished:
                    return
                self._deliver_end(event)
            batch.skip_to(reader.offset)
        if is_finished:
            batch.end_attempt(dense=self._settings.tracking.dense_points)
        self._flush(batch)

    def _follow_goodput(self) -> None:
        """Account the new events: already while the run trains, so that its end does not wait for the whole log."""
        for event in self._goodput_log.read_new():
            self._goodput.add(event)

    def _has_restarted(self, *, after: int) -> bool:
        """Whether the run was started again after this offset of its log."""
        later = RunLogReader(self._directory, offset=after).read_new()
        return any(isinstance(event, RunStarted) for event in later)

    def record_problem(self, problem: str) -> None:
        """Save in the run's folder why the delivery failed."""
        self._update_state(problem=problem)

    def _update_state(self, **changes: object) -> None:
        if any(getattr(self.state, name) != value for name, value in changes.items()):
            for name, value in changes.items():
                setattr(self.state, name, value)
            self.state.save(self._directory)

    def _open_run(self) -> None:
        """Connect, and create or look up the MLflow run; does nothing once that has succeeded."""
        if self._connected is not None:
            return
        client = connect(self._uri)
        if self.state.uri != self._uri:
            self._change_store(client)
        if not self.state.run_id:
            experiment_id = get_or_create_experiment(client, self._settings.tracking.experiment, uri=self._uri)
            run_id = get_or_create_run(
                client, experiment_id, key=self.state.run_key, name=self._started.run, started=self._started.time
            )
            self._update_state(experiment_id=experiment_id, run_id=run_id)
        self._connected = client

    @property
    def _client(self) -> mlflow.MlflowClient:
        assert self._connected is not None
        return self._connected

    def _change_store(self, client: mlflow.MlflowClient) -> None:
        """Handle a changed URI: keep the state if the store has the run; otherwise deliver the whole log to the new store."""
        if not self.state.run_id:
            self.state = self._new_state()
            return
        try:
            client.get_run(self.state.run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            self.state = self._new_state()
        else:
            self._update_state(uri=self._uri)

    def _new_state(self) -> TrackingState:
        """A state without deliveries, saved before the MLflow run is created, because its key identifies the run."""
        state = TrackingState(uri=self._uri)
        state.save(self._directory)
        return state

    def _deliver_system_metrics(self, *, is_finished: bool) -> None:
        dense = self._settings.tracking.dense_points
        thinner = Thinner(deepcopy(self.state.series.get(system.SERIES, Series(dense=dense))))
        is_last = False
        while not is_last:
            samples, offset = system.read_samples(self._directory, offset=self.state.system_offset)
            points = [point for sample in samples for point in thinner.add(sample)]
            is_last = offset == self.state.system_offset
            if is_last and (is_finished or thinner.series.dense != dense):
                points += thinner.close(dense=dense)
            self._send(points)
            self._update_state(
                system_offset=offset, series={**self.state.series, system.SERIES: deepcopy(thinner.series)}
            )

    def _flush(self, batch: Batch) -> None:
        self._send(batch.points)
        self._update_state(
            offset=batch.offset,
            newest_step=dict(batch.newest_step),
            series=deepcopy(batch.series),
        )
        batch.points = []

    def _send(self, points: Sequence[Point]) -> None:
        metrics = [mlflow.entities.Metric(*point) for point in points]
        for first in range(0, len(metrics), MAX_METRICS):
            self._client.log_batch(self.state.run_id, metrics=metrics[first : first + MAX_METRICS])

    def _deliver_run_event(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._deliver_start(event)
            case TrainingStarted():
                self._set_tags(payload.training_tags(event))
                self._deliver_dataset(event)
            case Restored():
                self._set_tags({"restored_from_step": str(event.step)})
            case Phase(name="finish", process="rank 0") if self._registers_model:
                # Training is over: prepare while the ranks evaluate, so that the end of the run waits less.
                self._registration = self._registration or ModelRegistration()

    def _deliver_start(self, event: RunStarted) -> None:
        settings = TrainingSettings.model_validate(event.settings)
        self._mark_running()
        existing = self._client.get_run(self.state.run_id).data
        tags = payload.start_tags(settings, event.environment) | dict(self._tags)
        for stale in ("error", *payload.CODE_TAGS):  # of an attempt before this one
            if stale in existing.tags and stale not in tags:
                self._client.delete_tag(self.state.run_id, stale)
        self._deliver_parameters(payload.parameters(settings), existing=existing.params)
        self._set_tags(tags)
        with upload_timeout():
            self._deliver_code(event.environment.get("code"))
            self._client.log_dict(self.state.run_id, event.environment, "environment.json")
            self._client.log_text(self.state.run_id, render(payload.redact(settings)), "settings.yaml")

    def _deliver_code(self, code: dict[str, Any] | None) -> None:
        """Log the archive of the run's own code, which repeats the run, once; a run that has lost it goes on without."""
        if code is None:
            return
        archive = self._directory / code["archive"]
        folder = archive.parent.name
        logged = {file.path for file in self._client.list_artifacts(self.state.run_id, folder)}
        if code["archive"] not in logged and archive.exists():
            # The identity first: where the archive is, both are.
            self._client.log_artifact(self.state.run_id, str(identity_file(archive)), folder)
            self._client.log_artifact(self.state.run_id, str(archive), folder)

    def _deliver_parameters(self, parameters: dict[str, str], *, existing: dict[str, str]) -> None:
        """Log new parameters; MLflow parameters are immutable, so tags record the values that a resume has changed."""
        new = [mlflow.entities.Param(key, value) for key, value in parameters.items() if key not in existing]
        changed = {f"changed.{key}": value for key, value in parameters.items() if existing.get(key, value) != value}
        for first in range(0, len(new), MAX_PARAMETERS):
            self._client.log_batch(self.state.run_id, params=new[first : first + MAX_PARAMETERS])
        self._set_tags(changed)

    def _deliver_dataset(self, event: TrainingStarted) -> None:
        data = self._settings.data
        dataset = mlflow.entities.Dataset(
            name=data.dataset,
            digest=event.dataset_fingerprint[:36],  # MLflow's limit
            source_type="local" if data.path else "package",
            source=str(data.path or data.dataset),
            profile=f'{{"train_samples": {event.train_samples}}}',
        )
        context = mlflow.entities.InputTag("mlflow.data.context", "training")
        self._client.log_inputs(self.state.run_id, datasets=[mlflow.entities.DatasetInput(dataset, tags=[context])])

    def _deliver_end(self, event: RunEnded) -> None:
        tags = {"weights_sha256": event.weights_sha256, "error": payload.truncate(event.message)}
        self._set_tags({key: value for key, value in tags.items() if value})
        self._send(payload.goodput_points(self._goodput, event))
        self._deliver_checkpoints()
        # Before the model: if that cannot be built, the run must not stay RUNNING.
        self._set_status(_STATUS[event.status], at=event.time)
        report, model = self._directory / "report.html", self._directory / "model"
        with upload_timeout():
            if report.exists():
                self._client.log_artifact(self.state.run_id, str(report))
            if event.status == "done":
                self._client.log_artifacts(self.state.run_id, str(model), "weights")
                if not self._registers_model or not self.has_logged_models():
                    return
                self._deliver_model()
                # Again: logging the model has terminated the run with the current time.
                self._set_status(_STATUS[event.status], at=event.time)

    def has_logged_models(self) -> bool:
        """Whether the server has logged models, which are new in MLflow 3; an older one gets the rest of the run."""
        if self.state.lacks:
            return False
        try:
            self._client.search_logged_models([self.state.experiment_id], max_results=1)
        except MlflowException as error:
            if error.error_code != "ENDPOINT_NOT_FOUND":
                raise
            self._update_state(
                lacks=f"MLflow {server_version(self._uri)} has no logged models: checkpoints and the model are not registered "
                "(MLflow 3 has them); the weights are artifacts of the run"
            )
        return not self.state.lacks

    def _deliver_checkpoints(self) -> None:
        if self._registers_model and self._settings.tracking.checkpoint_models and self.has_logged_models():
            models = CheckpointModels(
                self._client,
                self._directory,
                experiment_id=self.state.experiment_id,
                run_id=self.state.run_id,
            )
            models.update()

    def _deliver_model(self) -> None:
        registration = self._registration or ModelRegistration()
        self._registration = None
        name = registered_model(self._settings)
        version = registration.register(self._directory, uri=self._uri, run_id=self.state.run_id, name=name)
        self._update_state(model_version=version)

    def _mark_running(self) -> None:
        if self.state.status != "RUNNING":
            self._client.update_run(self.state.run_id, status="RUNNING")
            self._update_state(status="RUNNING")

    def _set_status(self, status: str, *, at: float) -> None:
        self._client.set_terminated(self.state.run_id, status, end_time=payload.milliseconds(at))
        self._update_state(status=status)

    def _set_tags(self, tags: dict[str, str]) -> None:
        if tags:
            self._client.log_batch(
                self.state.run_id, tags=[mlflow.entities.RunTag(key, value) for key, value in tags.items()]
            )
