"""Delivers a run's log to MLflow, from a cursor on, so that sending anything twice changes nothing.

Metrics: a SQL store has one row for a key, step, time and value. Parameters, tags, status and artifacts are set, not added. The run is
found again by a tag, the registered version by the hash of its weights. The cursor therefore may lag, and does after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from observability.runlog import (
    FILE_NAME,
    CheckpointCommitted,
    Evaluated,
    Event,
    Restored,
    RunEnded,
    RunLogReader,
    RunStarted,
    Step,
    TrainingStarted,
    decode,
)
from training.config.load import render
from training.config.schema import TrainingSettings
from training.tracking import payload, system
from training.tracking.client import MlflowException, connect, mlflow, uploading
from training.tracking.locations import embedded_artifacts, embedded_uri, registered_model, tracking_uri
from training.tracking.state import TrackingState

BATCH = 1000
"""Most metrics that MLflow takes in one request."""

BATCH_OF_PARAMETERS = 100
"""Most parameters that MLflow takes in one request."""

_STATUS = {"done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
_RUN_KEY = "run_key"


def last_start(run_directory: Path) -> RunStarted | None:
    """How the run was started last; None where it was not yet, or where there is no run."""
    marker = b'{"kind":"' + RunStarted.kind.encode() + b'"'
    try:
        lines = (run_directory / FILE_NAME).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return None
    found = [decode(line.decode()) for line in lines if line.startswith(marker) and line.endswith(b"\n")]
    return next((event for event in reversed(found) if isinstance(event, RunStarted)), None)


class Delivery:
    """Delivers one run. Whoever makes one holds the run's lock (`state.delivering`)."""

    def __init__(self, run_directory: Path, started: RunStarted) -> None:
        self._directory = run_directory
        self._started = started
        self._settings = TrainingSettings.model_validate(started.settings)
        self._uri = tracking_uri(self._settings.tracking)
        self.state = TrackingState.load(run_directory) or self._fresh_state()
        self._connected: mlflow.MlflowClient | None = None

    def advance(self, *, is_over: bool) -> None:
        """Deliver what there is.

        Args:
            is_over: nobody writes to the run any more; its end is then delivered, with model, report and status.

        Raises:
            Exception: one of `client.Unavailable`, the store is away or refuses. What was delivered before is remembered.
            SettingsError: the run's own model can no longer be built.
        """
        self._open_run()
        if not is_over:
            self._mark_running()
        self._deliver_system()
        self._deliver_log(is_over=is_over)
        if is_over and self.state.status == "RUNNING":
            # The driver is gone without a word. Should the run be resumed, its status says so again.
            self._set_status("KILLED", at=(self._directory / FILE_NAME).stat().st_mtime)
        self._remember(problem="")

    def _deliver_log(self, *, is_over: bool) -> None:
        reader = RunLogReader(self._directory, offset=self.state.offset)
        events = [(event, reader.offset) for event in reader.read_new()]
        batch = _Batch(self.state)
        for index, (event, offset) in enumerate(events):
            if isinstance(event, Step | Evaluated | CheckpointCommitted):
                if batch.is_full:
                    self._flush(batch)
                batch.add(event, offset)
                continue
            self._flush(batch)
            if not isinstance(event, RunEnded):
                self._deliver_fact(event)
            elif not _is_stale(events[index + 1 :]):
                if not is_over:
                    return
                self._deliver_end(event)
            batch.skip_to(offset)
        self._flush(batch)

    def remember_problem(self, problem: str) -> None:
        """Leave in the run's folder why it could not be delivered."""
        self._remember(problem=problem)

    def _remember(self, **changes: object) -> None:
        if any(getattr(self.state, name) != value for name, value in changes.items()):
            for name, value in changes.items():
                setattr(self.state, name, value)
            self.state.save(self._directory)

    def _open_run(self) -> None:
        """Connect, and make or find the run; after the first success there is nothing left to do."""
        if self._connected is not None:
            return
        client = connect(self._uri)
        if self.state.uri != self._uri:
            self._move(client)
        if not self.state.run_id:
            experiment_id = self._experiment(client)
            self._remember(experiment_id=experiment_id, run_id=self._find_or_create(client, experiment_id))
        self._connected = client

    @property
    def _client(self) -> mlflow.MlflowClient:
        assert self._connected is not None
        return self._connected

    def _move(self, client: mlflow.MlflowClient) -> None:
        """The address has changed: the same store under a new one, or another store, which then gets the whole history."""
        if not self.state.run_id:
            self.state = self._fresh_state()
            return
        try:
            client.get_run(self.state.run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            self.state = self._fresh_state()
        else:
            self._remember(uri=self._uri)

    def _fresh_state(self) -> TrackingState:
        """Nothing delivered yet. Saved before the MLflow run is made, for the run is found again by its key."""
        state = TrackingState(uri=self._uri)
        state.save(self._directory)
        return state

    def _experiment(self, client: mlflow.MlflowClient) -> str:
        name = self._settings.tracking.experiment
        known = client.get_experiment_by_name(name)
        if known is not None:
            return str(known.experiment_id)
        # A server knows where its artifacts go; the embedded store would take `mlruns` in the current folder.
        location = str(embedded_artifacts()) if self._uri == embedded_uri() else None
        try:
            return str(client.create_experiment(name, artifact_location=location))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            # Another run has made it in this moment.
            return str(client.get_experiment_by_name(name).experiment_id)

    def _find_or_create(self, client: mlflow.MlflowClient, experiment_id: str) -> str:
        found = client.search_runs([experiment_id], f"tags.{_RUN_KEY} = '{self.state.run_key}'", max_results=1)
        run = (
            found[0]
            if found
            else client.create_run(
                experiment_id,
                start_time=payload.milliseconds(self._started.time),
                run_name=self._started.run,
                tags={_RUN_KEY: self.state.run_key},
            )
        )
        return str(run.info.run_id)

    def _deliver_system(self) -> None:
        points, offset = system.read(self._directory, offset=self.state.system_offset)
        for first in range(0, len(points), BATCH):
            self._send(points[first : first + BATCH])
        self._remember(system_offset=offset)

    def _flush(self, batch: _Batch) -> None:
        if batch.points:
            self._send(batch.points)
        self._remember(offset=batch.offset, newest_step=dict(batch.newest_step))
        batch.points = []

    def _send(self, points: Sequence[payload.Point]) -> None:
        self._client.log_batch(self.state.run_id, metrics=[mlflow.entities.Metric(*point) for point in points])

    def _deliver_fact(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._deliver_start(event)
            case TrainingStarted():
                self._set_tags(payload.training_tags(event))
                self._deliver_dataset(event)
            case Restored():
                self._set_tags({"restored_from_step": str(event.step)})

    def _deliver_start(self, event: RunStarted) -> None:
        settings = TrainingSettings.model_validate(event.settings)
        self._mark_running()
        known = self._client.get_run(self.state.run_id).data
        if "error" in known.tags:
            # That of an earlier end: the run goes on.
            self._client.delete_tag(self.state.run_id, "error")
        self._deliver_parameters(payload.parameters(settings), known=known.params)
        self._set_tags(payload.start_tags(settings, event.environment))
        with uploading():
            self._client.log_dict(self.state.run_id, event.environment, "environment.json")
            self._client.log_text(self.state.run_id, render(payload.shareable(settings)), "settings.yaml")

    def _deliver_parameters(self, wanted: dict[str, str], *, known: dict[str, str]) -> None:
        """MLflow keeps a parameter's first value for good; what a resume has changed since is told by tags."""
        new = [mlflow.entities.Param(key, value) for key, value in wanted.items() if key not in known]
        changed = {f"changed.{key}": value for key, value in wanted.items() if known.get(key, value) != value}
        for first in range(0, len(new), BATCH_OF_PARAMETERS):
            self._client.log_batch(self.state.run_id, params=new[first : first + BATCH_OF_PARAMETERS])
        self._set_tags(changed)

    def _deliver_dataset(self, event: TrainingStarted) -> None:
        data = self._settings.data
        dataset = mlflow.entities.Dataset(
            name=data.dataset,
            digest=event.dataset_fingerprint[:36],  # the longest MLflow has room for
            source_type="local" if data.path else "package",
            source=str(data.path or data.dataset),
            profile=f'{{"train_samples": {event.train_samples}}}',
        )
        context = mlflow.entities.InputTag("mlflow.data.context", "training")
        self._client.log_inputs(self.state.run_id, datasets=[mlflow.entities.DatasetInput(dataset, tags=[context])])

    def _deliver_end(self, event: RunEnded) -> None:
        ending = {"weights_sha256": event.weights_sha256, "error": payload.shortened(event.message)}
        self._set_tags({key: value for key, value in ending.items() if value})
        # First, for a model that cannot be rebuilt must not leave the run as one that goes on.
        self._set_status(_STATUS[event.status], at=event.time)
        report, model = self._directory / "report.html", self._directory / "model"
        with uploading():
            if report.exists():
                self._client.log_artifact(self.state.run_id, str(report))
            if event.status == "done":
                self._client.log_artifacts(self.state.run_id, str(model), "weights")
                self._deliver_model(model)
                # Again, for MLflow's own call for models has ended the run a second time, now.
                self._set_status(_STATUS[event.status], at=event.time)

    def _deliver_model(self, folder: Path) -> None:
        from training.tracking import model  # noqa: PLC0415 - torch is needed for nothing else here

        # MLflow's calls for models have a store of the process, not of a client.
        mlflow.set_tracking_uri(self._uri)
        name = registered_model(self._settings)
        self._remember(model_version=model.register(folder, run_id=self.state.run_id, name=name))

    def _mark_running(self) -> None:
        if self.state.status != "RUNNING":
            self._client.update_run(self.state.run_id, status="RUNNING")
            self._remember(status="RUNNING")

    def _set_status(self, status: str, *, at: float) -> None:
        self._client.set_terminated(self.state.run_id, status, end_time=payload.milliseconds(at))
        self._remember(status=status)

    def _set_tags(self, tags: dict[str, str]) -> None:
        if tags:
            self._client.log_batch(
                self.state.run_id, tags=[mlflow.entities.RunTag(key, value) for key, value in tags.items()]
            )


class _Batch:
    """Metrics on their way, and the cursor as it will be when they have arrived."""

    def __init__(self, state: TrackingState) -> None:
        self.points: list[payload.Point] = []
        self.offset = state.offset
        self.newest_step = dict(state.newest_step)

    @property
    def is_full(self) -> bool:
        """Whether another event's metrics might not fit."""
        return len(self.points) > BATCH - 20

    def add(self, event: Event, offset: int) -> None:
        """Take an event in, unless its step was seen before: steps that a crash had lost come again when they are done again."""
        series = payload.series(event)
        new = payload.points(event)
        if new and new[0].step > self.newest_step.get(series, -1):
            self.points += new
            self.newest_step[series] = new[0].step
        self.offset = offset

    def skip_to(self, offset: int) -> None:
        """The events up to here were dealt with otherwise."""
        self.offset = offset


def _is_stale(later: Sequence[tuple[Event, int]]) -> bool:
    """Whether the run was started again after this end."""
    return any(isinstance(event, RunStarted) for event, _ in later)
