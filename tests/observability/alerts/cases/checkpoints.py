"""Cases of `observability.alerts.checkpoints` and `searches`."""

from __future__ import annotations

from tests.observability.alerts.cases.case import RUN_TEXT, Case, flat, later, of_run, rising, series

_CHECKPOINT = of_run("checkpoint_timestamp_seconds")
_NEWEST, _STEP = of_run("last_step_timestamp_seconds"), of_run("step")
_REFUSED = of_run("checkpoints_refused_total")
_SAVED, _COPIED = of_run("checkpoint_step"), of_run("remote_checkpoint_step")
_UPLOAD_FAILURES = of_run("checkpoint_upload_failures_total")
_STALLS = of_run("step_part_seconds_total", part="checkpoint")
_BACKLOG = of_run("spool_backlog_bytes")
_WITHIN, _LONGER, _ALL = (of_run("checkpoint_write_seconds_bucket", le=le) for le in ("120", "300", "+Inf"))

_SEARCH_LABELS = {"namespace": "vision", "training_job": "sweep", "search": "s1"}
_SEARCH_TEXT = "search s1 of job vision/sweep"
_EVALUATED = series("ray_rtp_search_last_evaluation_timestamp_seconds", **_SEARCH_LABELS)


def _trials(status: str) -> str:
    return series("ray_rtp_search_trials", **_SEARCH_LABELS, status=status)


CASES = {
    "CheckpointOverdue": Case(
        at=70,
        series={_CHECKPOINT: flat(60, 70), _NEWEST: rising(60, 70)},
        summary=f"The newest checkpoint is 1h 9m 0s old in {RUN_TEXT}.",
        silent={
            "younger than the objective": {_CHECKPOINT: flat(660, 70)},
            "it has just become too old": {_CHECKPOINT: flat(420, 70)},
            "the run makes no steps": {_NEWEST: flat(0, 70)},
        },
    ),
    "CheckpointMissing": Case(
        at=70,
        series={_STEP: rising(1, 70)},
        summary=f"60 steps in an hour, and no checkpoint, of {RUN_TEXT}.",
        silent={
            "a checkpoint": {_CHECKPOINT: later(30, flat(1800, 40))},
            "no steps": {_STEP: flat(5, 70)},
            "a run of half an hour": {_STEP: later(35, rising(1, 35))},
            "a run of little more than an hour": {_STEP: later(7, rising(1, 63))},
        },
    ),
    "CheckpointStall": Case(
        at=50,
        series={_STALLS: rising(3.6, 50)},
        summary=f"Checkpoints block the loop for 6% of the time in {RUN_TEXT}.",
        silent={
            "less than the limit": {_STALLS: rising(2.9, 50)},
            "it has just begun": {_STALLS: "0+0x39 0+30x10"},
            "the counter restarts": {_STALLS: "0+2.4x25 0+2.4x25"},
        },
    ),
    "CheckpointWriteSlow": Case(
        at=30,
        series={_WITHIN: flat(0, 30), _LONGER: rising(1, 30), _ALL: rising(1, 30)},
        summary=f"A checkpoint takes 4m 42s to be written in {RUN_TEXT}.",
        silent={
            "within two minutes": {_WITHIN: rising(1, 30)},
            "no checkpoints": {_LONGER: flat(3, 30), _ALL: flat(3, 30)},
        },
    ),
    "CheckpointRefused": Case(
        at=75,
        series={_REFUSED: later(70, flat(1, 5))},
        summary=f"1 checkpoints failed verification in {RUN_TEXT}, which resumed from an older one.",
        silent={"longer ago": {_REFUSED: flat(1, 75)}, "the counter restarts": {_REFUSED: "2+0x70 1+0x5"}},
    ),
    "CheckpointBucketBehind": Case(
        at=80,
        series={_SAVED: rising(10, 80), _COPIED: flat(100, 80)},
        summary=f"The bucket lacks the checkpoint of an hour ago, and is 700 steps behind the newest, in {RUN_TEXT}.",
        silent={
            "a lag of less than an hour": {_COPIED: flat(300, 80)},
            "it has just become too long": {_COPIED: flat(160, 80)},
            "a run that commits every two hours, and copies": {_SAVED: f"{flat(100, 70)} {flat(1300, 10)}"},
            "the bucket has the newest": {_SAVED: flat(100, 80)},
            "a run that was set back to an older checkpoint": {_SAVED: f"{flat(900, 75)} {flat(90, 5)}"},
            "a run without a bucket": {_COPIED: ""},
            "uploads fail, which is another alert": {_UPLOAD_FAILURES: rising(1, 80)},
        },
    ),
    "CheckpointUploadsFail": Case(
        at=45,
        series={_UPLOAD_FAILURES: later(5, rising(1, 40))},
        summary=f"15 uploads of checkpoints to the bucket failed in 15 minutes in {RUN_TEXT}.",
        silent={
            "once": {_UPLOAD_FAILURES: later(5, flat(1, 40))},
            "for ten minutes": {_UPLOAD_FAILURES: later(5, f"0+1x10 {flat(10, 30)}")},
            "no longer": {_UPLOAD_FAILURES: f"0+1x25 {flat(25, 20)}"},
            "the counter restarts": {_UPLOAD_FAILURES: f"{flat(40, 20)} {flat(3, 25)}"},
        },
    ),
    "TrackingBacklog": Case(
        at=20,
        series={_BACKLOG: flat(300 * 2**20, 20)},
        summary=f"300MiB of metrics are not delivered to MLflow in {RUN_TEXT}.",
        silent={"at the limit": {_BACKLOG: flat(2**28, 20)}},
    ),
    "SearchStalled": Case(
        at=130,
        series={_EVALUATED: flat(0, 130), _trials("running"): flat(2, 130)},
        labels=_SEARCH_LABELS,
        summary=f"No trial has been evaluated for 2h 10m 0s in {_SEARCH_TEXT}.",
        silent={
            "within two hours": {_EVALUATED: flat(900, 130)},
            "it has just begun": {_EVALUATED: flat(420, 130)},
            "no trial runs": {_trials("running"): flat(0, 130)},
        },
    ),
    "SearchTrialsFail": Case(
        at=1,
        series={_trials("failed"): flat(4, 1), _trials("done"): flat(6, 1), _trials("running"): flat(20, 1)},
        labels=_SEARCH_LABELS,
        summary=f"40% of the ended trials have failed in {_SEARCH_TEXT}.",
        silent={
            "at the limit": {_trials("failed"): flat(3, 1), _trials("done"): flat(7, 1)},
            "too few to say": {_trials("failed"): flat(2, 1), _trials("done"): flat(0, 1)},
        },
    ),
}
