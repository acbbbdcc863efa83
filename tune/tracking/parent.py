"""The parent run of a search in MLflow."""

from __future__ import annotations

import math
from pathlib import Path

from infra.spec.yaml_text import inline
from observability.objective_metrics import is_better
from training.config.schema import TrainingSettings
from training.tracking import payload
from training.tracking.client import STORE_ERRORS, connect, mlflow, summarize, upload_timeout
from training.tracking.creation import get_or_create_experiment, get_or_create_run
from training.tracking.delivery import Delivery, last_start
from training.tracking.locations import redact_uri, registered_model, run_page, tracking_uri
from training.tracking.process import DeliveryReport
from training.tracking.registration import ModelRegistration
from training.tracking.state import StoreUnavailableError, TrackingState
from tune.folder import SearchFolder
from tune.history import SearchHistory, TrialHistory

_STATUS = {"done": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class SearchDelivery:
    """Delivers a search: its own run, then those of its trials. All of it is idempotent."""

    def __init__(self, folder: SearchFolder, history: SearchHistory) -> None:
        """Args: `history` is of a search that has started."""
        self._folder = folder
        self._history = history
        self._settings = TrainingSettings.model_validate(history.started[-1].shared)
        self._uri = tracking_uri(self._settings.tracking, folder.path)
        state = TrackingState.load(folder.path)
        self._state = state if state is not None and state.uri == self._uri else TrackingState(uri=self._uri)
        self._client: mlflow.MlflowClient | None = None
        self._trials: dict[str, Delivery] = {}

    def deliver(self, *, is_finished: bool) -> None:
        """Deliver what has happened since the last call.

        Args:
            is_finished: no driver runs any more.

        Raises:
            StoreUnavailableError: the store is unavailable or rejects a request.
        """
        try:
            client = self._open()
            for trial in self._history.trials.values():
                self._deliver_trial(trial, is_finished=is_finished)
            self._deliver_results(client)
            if is_finished:
                self._deliver_end(client)
        except STORE_ERRORS as error:
            raise StoreUnavailableError(summarize(error)) from error

    def report(self, *, is_complete: bool, problem: str = "") -> DeliveryReport:
        """What was delivered."""
        return DeliveryReport(
            is_complete=is_complete,
            uri=redact_uri(self._uri),
            run_id=self._state.run_id,
            page=run_page(self._uri, experiment_id=self._state.experiment_id, run_id=self._state.run_id),
            model=f"{registered_model(self._settings)}/{self._state.model_version}"
            if self._state.model_version
            else "",
            problem=problem,
            lacks=next((one.state.lacks for one in self._trials.values()), ""),
        )

    def _open(self) -> mlflow.MlflowClient:
        if self._client is not None:
            return self._client
        client = connect(self._uri)
        if not self._state.run_id:
            self._state.save(self._folder.path)  # its key, before a run has it
            started = self._history.started[0]
            self._state.experiment_id = get_or_create_experiment(
                client, self._settings.tracking.experiment, uri=self._uri
            )
            self._state.run_id = get_or_create_run(
                client,
                self._state.experiment_id,
                key=self._state.run_key,
                name=started.search,
                started=started.time,
                tags={"search": started.search},
            )
            self._state.save(self._folder.path)
        client.update_run(self._state.run_id, status="RUNNING")
        self._deliver_settings(client)
        self._client = client
        return client

    def _deliver_settings(self, client: mlflow.MlflowClient) -> None:
        search = self._history.started[-1].settings
        space = {f"space.{key}": {k: v for k, v in axis.items() if v} for key, axis in search["space"].items()}
        wanted = {key: payload.truncate(inline(value)) for key, value in {**search, **space}.items() if key != "space"}
        existing = client.get_run(self._state.run_id).data.params
        for key in wanted.keys() - existing.keys():
            client.log_param(self._state.run_id, key, wanted[key])
        with upload_timeout():
            client.log_artifact(self._state.run_id, str(self._folder.settings_file))

    def _deliver_trial(self, trial: TrialHistory, *, is_finished: bool) -> None:
        run = self._folder.trial(trial.id)
        delivery = self._trials.get(trial.id) or self._open_trial(run.path, trial)
        if delivery is None:
            return
        delivery.deliver(is_finished=trial.ended is not None or is_finished)
        if trial.ended is not None:
            if trial.ended.status == "failed":  # also where its run was stopped or killed, and cannot say so
                delivery.mark_failed(trial.ended.message, at=trial.ended.time)
            delivery.close()

    def _open_trial(self, run: Path, trial: TrialHistory) -> Delivery | None:
        started = last_start(run)
        if started is None:
            return None
        tags = {"mlflow.parentRunId": self._state.run_id, "search": self._folder.name, "trial": trial.id}
        self._trials[trial.id] = Delivery(run, started, tags=tags, registers_model=False)
        return self._trials[trial.id]

    def _deliver_results(self, client: mlflow.MlflowClient) -> None:
        """The best value after each trial that has ended, and the counts of trials."""
        [metric, mode], *_ = self._history.objectives.items()
        ended = [trial for trial in self._history.trials.values() if trial.ended is not None]
        points = []
        best = math.nan
        for number, trial in enumerate(sorted(ended, key=_time_of_end), start=1):
            value = trial.best(metric, mode)
            if trial.status != "failed" and not math.isnan(value):
                best = value if is_better(value, best, higher_is_better=mode == "max") else best
                points.append(
                    mlflow.entities.Metric(f"best_{metric}", best, payload.milliseconds(_time_of_end(trial)), number)
                )
        new = points[self._state.newest_step.get("best", 0) :]
        if new:
            client.log_batch(self._state.run_id, metrics=new)
            self._state.newest_step["best"] = len(points)
            self._state.save(self._folder.path)

    def _deliver_end(self, client: mlflow.MlflowClient) -> None:
        best = self._history.ranked()[:1]
        if best:
            client.set_tag(self._state.run_id, "best_trial", best[0].id)
        with upload_timeout():
            for file in (self._folder.best_file, self._folder.report):
                if file.exists():
                    client.log_artifact(self._state.run_id, str(file))
            ended = self._history.ended
            if ended is not None and ended.status == "done" and best and not self._state.model_version:
                self._register(client, best[0])
        status = _STATUS[ended.status] if ended is not None else "KILLED"
        client.set_terminated(self._state.run_id, status)

    def _register(self, client: mlflow.MlflowClient, best: TrialHistory) -> None:
        """Register the best trial's model, if it has trained to its end, with where it comes from."""
        delivery = self._trials.get(best.id)
        if delivery is None or best.status != "done" or not delivery.has_logged_models():
            return
        name = registered_model(self._settings)
        version = ModelRegistration().register(
            self._folder.trial(best.id).path, uri=self._uri, run_id=delivery.state.run_id, name=name
        )
        for key, value in {"search": self._folder.name, "trial": best.id, "search_run_id": self._state.run_id}.items():
            client.set_model_version_tag(name, version, key, value)
        self._state.model_version = version
        self._state.save(self._folder.path)


def _time_of_end(trial: TrialHistory) -> float:
    return trial.ended.time if trial.ended is not None else 0.0
