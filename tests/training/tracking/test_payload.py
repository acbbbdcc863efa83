"""What MLflow is told, as pure functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from observability.runlog import CheckpointCommitted, Evaluated, Event, Notice, Step
from training.config.schema import ModelSettings, TrainingSettings
from training.tracking import payload
from training.tracking.locations import registered_model, run_page, without_password

OPTION_VALUES = st.one_of(
    st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.none()
)


def one_of_each() -> list[Event]:
    """An event of each kind that is measured."""
    return [
        Step(
            time=1.5,
            step=3,
            epoch=1,
            loss=2.0,
            accuracy=0.5,
            gradient_norm=1.0,
            learning_rate=0.1,
            samples=64,
            seconds=0.5,
        ),
        Evaluated(time=1.5, split="validation", step=3, epoch=1, loss=1.0, accuracy=0.9, samples=100, seconds=0.1),
        CheckpointCommitted(time=1.5, step=3, path="x", bytes=10, stall_seconds=0.1, write_seconds=0.2),
    ]


def test_every_setting_becomes_a_parameter() -> None:
    parameters = payload.parameters(TrainingSettings())
    assert parameters["loop.epochs"] == "10"
    assert parameters["scale.gpu"] == "false"
    assert parameters["optimizer.betas"] == "[0.9, 0.999]"
    assert parameters["tracking.uri"] == "null"
    assert {key.partition(".")[0] for key in parameters} == set(TrainingSettings.model_fields)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,20}", fullmatch=True), OPTION_VALUES, max_size=5))
def test_a_parameter_says_its_option_unless_it_is_too_long(options: dict[str, bool | float | str | None]) -> None:
    settings = TrainingSettings(model=ModelSettings(name="mine:make", options=dict(options)))
    parameters = payload.parameters(settings)
    for name, value in options.items():
        said = parameters[f"model.options.{name}"]
        assert len(said) <= payload.LONGEST_VALUE
        if len(said) < payload.LONGEST_VALUE:
            assert said == value if isinstance(value, str) else json.loads(said) == value


def test_a_value_that_is_too_long_is_cut_visibly() -> None:
    assert payload.shortened("x" * 501) == "x" * 499 + "…"


def test_a_password_is_in_no_parameter_and_no_settings_file() -> None:
    settings = TrainingSettings.model_validate({"tracking": {"uri": "https://me:secret@host:5000/path"}})
    assert payload.parameters(settings)["tracking.uri"] == "https://host:5000/path"
    assert "secret" not in payload.shareable(settings).model_dump_json()


@pytest.mark.parametrize("uri", ["sqlite:////a/b.db", "http://host:1", "file:///a@b", "databricks"])
def test_an_address_without_a_password_is_left_as_it_is(uri: str) -> None:
    assert without_password(uri) == uri


def test_a_run_has_a_page_only_where_there_is_a_server() -> None:
    assert run_page("http://a:b@host:1/", experiment_id="2", run_id="r") == "http://host:1/#/experiments/2/runs/r"
    assert run_page("sqlite:///x.db", experiment_id="2", run_id="r") == ""


def test_the_registered_model_is_named_after_model_and_dataset() -> None:
    own = {"model": {"name": "package.module:make"}, "data": {"dataset": "a/b"}}
    assert registered_model(TrainingSettings()) == "simple_cnn-digits"
    assert registered_model(TrainingSettings.model_validate(own)) == "package.module.make-a.b"


def test_a_step_gives_rate_and_parts_of_its_time() -> None:
    values = {point.key: point.value for point in payload.points(one_of_each()[0])}
    assert values["train/samples_per_second"] == 128.0
    assert values["time/step_seconds"] == 0.5
    assert {f"time/{part}_seconds" for part in ("data", "forward", "backward", "optimizer", "checkpoint")} <= set(
        values
    )


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.kind)
def test_a_measurement_keeps_its_step_and_time(event: Event) -> None:
    assert {(point.step, point.timestamp) for point in payload.points(event)} == {(3, 1500)}
    assert payload.series(event)


def test_what_is_no_measurement_gives_no_metric() -> None:
    notice = Notice(level="info", message="hello")
    assert payload.points(notice) == []
    assert payload.series(notice) == ""


def test_tags_name_the_commit_only_where_there_is_one() -> None:
    known: dict[str, Any] = {"user": "u", "host": "h", "platform_version": "1", "git": None}
    assert "mlflow.source.git.commit" not in payload.start_tags(TrainingSettings(), known)
    known["git"] = {"revision": "abc", "branch": "main", "dirty": True}
    tags = payload.start_tags(TrainingSettings(), known)
    assert (tags["mlflow.source.git.commit"], tags["mlflow.source.git.dirty"]) == ("abc", "true")


def test_settings_with_paths_are_plain_values() -> None:
    settings = TrainingSettings.model_validate({"data": {"path": Path("/data")}})
    assert payload.parameters(settings)["data.path"] == "/data"
