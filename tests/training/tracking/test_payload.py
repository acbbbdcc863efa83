"""MLflow parameters, tags and metrics of settings and events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from observability.runlog import CheckpointCommitted, Evaluated, Event, Notice, Step
from training.config.schema import ModelSettings, TrainingSettings
from training.tracking import payload
from training.tracking.locations import redact_uri, registered_model, run_page

OPTION_VALUES = st.one_of(
    st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.none()
)


def events_with_metrics() -> list[Event]:
    """An event of each kind that has metrics."""
    return [
        Step(
            time=1.5006, step=3, epoch=1, loss=2.0, metrics={"accuracy": 0.5}, gradient_norm=1.0, learning_rate=0.1,
            samples=64, seconds=0.5, data_seconds=0.01, forward_seconds=0.02, backward_seconds=0.03,
            communication_seconds=0.06, optimizer_seconds=0.04, checkpoint_seconds=0.05,
        ),
        Evaluated(
            time=1.5006, split="validation", step=3, epoch=1, loss=1.0, metrics={"accuracy": 0.9}, samples=100,
            seconds=0.1,
        ),
        CheckpointCommitted(time=1.5006, step=3, path="x", bytes=10, stall_seconds=0.1, write_seconds=0.2),
    ]  # fmt: skip


def test_every_setting_becomes_a_parameter() -> None:
    parameters = payload.parameters(TrainingSettings())
    assert parameters["loop.epochs"] == "10"
    assert parameters["scale.gpu"] == "false"
    assert parameters["optimizer.betas"] == "[0.9, 0.999]"
    assert parameters["tracking.uri"] == "null"
    assert parameters["model.options"] == "{}"
    assert {key.partition(".")[0] for key in parameters} == set(TrainingSettings.model_fields)
    on_disk = TrainingSettings.model_validate({"data": {"path": Path("/data")}})
    assert payload.parameters(on_disk)["data.path"] == "/data"
    assert payload.truncate("x" * 501) == "x" * 499 + "…"


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,20}", fullmatch=True), OPTION_VALUES, max_size=5))
def test_an_option_becomes_a_parameter_with_its_value(options: dict[str, bool | float | str | None]) -> None:
    settings = TrainingSettings(model=ModelSettings(name="mine:make", options=dict(options)))
    parameters = payload.parameters(settings)
    for name, value in options.items():
        text = parameters[f"model.options.{name}"]
        assert len(text) <= payload.MAX_VALUE_CHARACTERS
        if len(text) < payload.MAX_VALUE_CHARACTERS:
            assert (text if isinstance(value, str) else json.loads(text)) == value


def test_parameters_and_shared_settings_have_no_credentials() -> None:
    settings = TrainingSettings.model_validate({"tracking": {"uri": "https://me:secret@host:5000/path"}})
    assert payload.parameters(settings)["tracking.uri"] == "https://host:5000/path"
    assert "secret" not in payload.redact(settings).model_dump_json()


def test_a_uri_without_credentials_is_unchanged_and_only_a_server_has_a_page_of_a_run() -> None:
    for uri in ("sqlite:////a/b.db", "http://host:1", "file:///a@b", "databricks"):
        assert redact_uri(uri) == uri
    assert run_page("http://a:b@host:1/", experiment_id="2", run_id="r") == "http://host:1/#/experiments/2/runs/r"
    assert run_page("sqlite:///x.db", experiment_id="2", run_id="r") == ""


def test_the_registered_model_is_named_after_model_and_dataset() -> None:
    own = {"model": {"name": "package.module:make"}, "data": {"dataset": "a/b"}}
    assert registered_model(TrainingSettings()) == "simple_cnn-digits"
    assert registered_model(TrainingSettings.model_validate(own)) == "package.module.make-a.b"


def test_every_measurement_becomes_a_metric() -> None:
    step, evaluated, committed = (
        {point.key: point.value for point in payload.points(event)} for event in events_with_metrics()
    )
    assert step == {
        "train/loss": 2.0,
        "train/accuracy": 0.5,
        "train/gradient_norm": 1.0,
        "train/learning_rate": 0.1,
        "train/samples_per_second": 128.0,
        "time/step_seconds": 0.5,
        "time/data_seconds": 0.01,
        "time/forward_seconds": 0.02,
        "time/backward_seconds": 0.03,
        "time/communication_seconds": 0.06,
        "time/optimizer_seconds": 0.04,
        "time/checkpoint_seconds": 0.05,
    }
    assert evaluated == {"validation/loss": 1.0, "validation/accuracy": 0.9, "validation/seconds": 0.1}
    assert committed == {"checkpoint/bytes": 10, "checkpoint/stall_seconds": 0.1, "checkpoint/write_seconds": 0.2}


def test_metrics_have_the_step_time_and_series_of_their_event_and_a_notice_has_none() -> None:
    events = events_with_metrics()
    assert [payload.series(event) for event in events] == ["train", "validation", "checkpoint"]
    for event in events:
        assert {(point.step, point.timestamp) for point in payload.points(event)} == {(3, 1501)}, event.kind
    notice = Notice(level="info", message="hello")
    assert (payload.points(notice), payload.series(notice)) == ([], "")


def test_git_tags_are_set_only_in_a_git_repository() -> None:
    environment: dict[str, Any] = {"user": "u", "host": "h", "platform_version": "1", "git": None}
    assert "mlflow.source.git.commit" not in payload.start_tags(TrainingSettings(), environment)
    environment["git"] = {"revision": "abc", "branch": "main", "dirty": True}
    tags = payload.start_tags(TrainingSettings(), environment)
    assert (tags["mlflow.source.git.commit"], tags["mlflow.source.git.dirty"]) == ("abc", "true")
