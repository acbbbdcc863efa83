"""Cases of `observability.alerts.training`, `goodput`, `run_cost` and `budgets`."""

from __future__ import annotations

from infra.spec.cluster_names import TEAM_BUDGETS
from tests.observability.alerts.cases.case import RUN_LABELS, RUN_TEXT, Case, flat, later, of_run, rising, series

TRIAL = {series("ray_rtp_search_planned_trials", namespace="vision", training_job="first", search="s1"): flat(9, 400)}
_STEP, _PLANNED = of_run("step"), of_run("planned_steps")
_NEWEST = of_run("last_step_timestamp_seconds")
_LOSS, _SPEED = of_run("loss"), of_run("samples_per_second")
_RESTARTS = of_run("restarts_total")
_REPEATED = of_run("repeated_seconds_total", **{"class": "productive"})
_REPEATED_DOLLARS = of_run("repeated_dollars_total", team="vision", **{"class": "productive"})
_DATA, _FORWARD = of_run("step_part_seconds_total", part="data"), of_run("step_part_seconds_total", part="forward")
_FOUR_RESTARTS = {
    of_run("restarts_total", WorkerId="a"): later(10, flat(1, 40)),
    of_run("restarts_total", WorkerId="b"): later(20, flat(2, 30)),
    of_run("restarts_total", WorkerId="c"): later(30, flat(3, 20)),
    of_run("restarts_total", WorkerId="d"): later(40, flat(4, 10)),
}
_THREE_RESTARTS = {of_run("restarts_total", WorkerId="d"): ""}
_RESUMED = {**dict.fromkeys(_FOUR_RESTARTS, ""), _RESTARTS: later(10, flat(9, 40))}


def _speeds(slowest: float, *, minutes: int = 15) -> dict[str, str]:
    speeds = [100, 100, 100, slowest]
    return {
        of_run("rank_samples_per_second", rank=str(rank)): flat(speed, minutes) for rank, speed in enumerate(speeds)
    }


def _waits(first: float, second: float, *, minutes: int = 30) -> dict[str, str]:
    """Two ranks that wait for so many seconds of every minute, of which the steps take all."""
    name = "rank_communication_seconds_total"
    waits = {of_run(name, rank=str(rank)): rising(seconds, minutes) for rank, seconds in enumerate((first, second))}
    return {**waits, _FORWARD: rising(60, minutes)}


def _of_class(name: str) -> str:
    return of_run("wall_seconds_total", **{"class": name})


def _spent(name: str) -> str:
    return of_run("cost_dollars_total", team="vision", **{"class": name})


_PRODUCTIVE = _of_class("productive")
_SPENT_TODAY = series("team:dollars:sum1d", team="vision")
_BUDGET = series(TEAM_BUDGETS, team="vision")

CASES = {
    "TrainingStalled": Case(
        at=18,
        series={_NEWEST: flat(60, 18), _STEP: flat(10, 18), _PLANNED: flat(100, 18)},
        summary=f"No step for 17m 0s in {RUN_TEXT}.",
        silent={
            "a step 15 minutes ago": {_NEWEST: flat(180, 18)},
            "it has just begun": {_NEWEST: flat(120, 18)},
            "a trial of a search": TRIAL,
            "the run has done all steps": {_STEP: flat(100, 18)},
            "a new process after a restart": {
                of_run("last_step_timestamp_seconds", WorkerId="b"): later(12, flat(720, 6))
            },
        },
    ),
    "TrainingStraggler": Case(
        at=15,
        series=_speeds(69),
        labels={**RUN_LABELS, "rank": "3"},
        summary=f"Rank 3 has 69% of the median speed in {RUN_TEXT}.",
        silent={"at the limit": _speeds(70), "all ranks are slow": dict.fromkeys(_speeds(0), flat(10, 15))},
    ),
    "TrainingDataBound": Case(
        at=30,
        series={_DATA: rising(20, 30), _FORWARD: rising(30, 30)},
        summary=f"40% of the step time is waiting for data in {RUN_TEXT}.",
        silent={
            "less than the limit": {_DATA: rising(12, 30)},
            "the counters restart": {_DATA: "0+12x15 0+12x15", _FORWARD: "0+30x15 0+30x15"},
        },
    ),
    "TrainingCommunicationBound": Case(
        at=30,
        series=_waits(24, 30),
        summary=f"40% of the step time is waiting for the network in {RUN_TEXT}.",
        silent={
            "less than the limit": _waits(17, 30),
            "one rank is slow, and waits for nobody": _waits(3, 30),
            "the counters restart": {
                **dict.fromkeys(_waits(0, 0), "0+17x15 0+17x15"),
                **dict.fromkeys((_DATA, _FORWARD), "0+30x15 0+30x15"),
            },
        },
    ),
    "TrainingNonFiniteSteps": Case(
        at=21,
        series={of_run("nonfinite_steps_total"): later(20, flat(11, 5))},
        summary=f"11 steps with a NaN or infinite loss or gradient in 15 minutes in {RUN_TEXT}.",
        silent={
            "at the limit": {of_run("nonfinite_steps_total"): later(20, flat(10, 5))},
            "the counter restarts": {of_run("nonfinite_steps_total"): "500+0x18 3+0x5"},
        },
    ),
    "TrainingLossDiverging": Case(
        at=80,
        series={_LOSS: "1+0x30 2.5+0x50"},
        summary=f"The loss is 2.5 times its lowest mean of six hours in {RUN_TEXT}.",
        silent={
            "less than twice": {_LOSS: "1+0x30 1.9+0x50"},
            "it has just begun": {_LOSS: "1+0x60 2.5+0x20"},
            "a loss of almost nothing": {_LOSS: "0.01+0x30 0.09+0x50"},
            "a single bad batch": {_LOSS: "1+0x30 30+0x1 1+0x48"},
        },
    ),
    "TrainingSlower": Case(
        at=120,
        series={_SPEED: "100+0x90 60+0x30"},
        summary=f"Throughput is 60% of the median of six hours in {RUN_TEXT}.",
        silent={
            "above the limit": {_SPEED: "100+0x90 72+0x30"},
            "it has just begun": {_SPEED: "100+0x105 60+0x15"},
            "a restart's gap": {_SPEED: "100+0x90 _x20 100+0x9"},
            "its data is the cause": {_DATA: rising(20, 120), _FORWARD: rising(30, 120)},
            "its network is the cause": _waits(24, 30, minutes=120),
            "a slow rank is the cause": _speeds(60, minutes=120),
        },
    ),
    "TrainingRestartChurn": Case(
        at=45,
        series=_FOUR_RESTARTS,
        summary=f"3 restarts within an hour in {RUN_TEXT}.",
        silent={"one restart less": _THREE_RESTARTS, "a resumed run with nine restarts in its past": _RESUMED},
    ),
    "TrainingPoisonStep": Case(
        at=45,
        series=_FOUR_RESTARTS,
        summary=f"3 restarts within an hour, and no checkpoint between them, in {RUN_TEXT}.",
        silent={
            "one restart less": _THREE_RESTARTS,
            "a checkpoint between them": {of_run("checkpoint_timestamp_seconds"): later(25, flat(1500, 3))},
        },
    ),
    "GoodputBurnsFast": Case(
        at=65,
        series={_PRODUCTIVE: rising(54, 65), _REPEATED: rising(36, 65), _STEP: flat(5, 65)},
        summary=f"70% of the last hour was no training in {RUN_TEXT}.",
        silent={
            "less than the limit": {_REPEATED: rising(29, 65)},
            "a trial of a search": TRIAL,
            "it has recovered": {_REPEATED: "0+42x55 2310+0x9"},
            "it has just begun": {_REPEATED: "0+0x44 0+48x20"},
            "it has waited in the queue": {_of_class("queue"): "0+0x20 2400+0x44"},
            "it was preempted": {_of_class("idle"): "0+0x20 2400+0x44"},
            "a run of little more than an hour": {_STEP: later(4, flat(5, 61))},
            "a run of half an hour": {
                _STEP: later(30, flat(5, 35)),
                _PRODUCTIVE: later(30, rising(54, 35)),
                _REPEATED: later(30, rising(36, 35)),
            },
            "a run of that name begins anew": {_PRODUCTIVE: "5000+54x60 0+54x4", _REPEATED: "3000+36x60 0+0x4"},
        },
    ),
    "GoodputBurnsSlowly": Case(
        at=380,
        series={_PRODUCTIVE: rising(54, 380), _REPEATED: rising(15, 380), _STEP: flat(5, 380)},
        summary=f"35% of the last six hours was no training in {RUN_TEXT}.",
        silent={
            "less than the limit": {_REPEATED: rising(11, 380)},
            "a trial of a search": TRIAL,
            "it has recovered": {_REPEATED: "0+24x340 8160+0x39"},
            "it has just begun": {_REPEATED: "0+0x299 0+24x80"},
            "it was preempted": {_of_class("idle"): "0+0x100 3600+0x279"},
            "a run of little more than six hours": {_STEP: later(10, flat(5, 370))},
            "a run of five hours": {
                _STEP: later(80, flat(5, 300)),
                _PRODUCTIVE: later(80, rising(54, 300)),
                _REPEATED: later(80, rising(15, 300)),
            },
        },
    ),
    "TeamDollarsLost": Case(
        at=250,
        series={
            _spent("startup"): rising(0.2, 250),
            _spent("productive"): rising(0.5, 250),
            _REPEATED_DOLLARS: rising(0.3, 250),
        },
        labels={"team": "vision"},
        summary="The runs of team vision lose $30.00 an hour, more than half of what they cost.",
        silent={
            "less than the limit": {_REPEATED_DOLLARS: rising(0.1, 250)},
            "half of what they cost": {_spent("productive"): rising(0.8, 250)},
            "an hour ago it was productive": {_REPEATED_DOLLARS: "0+0x190 0+0.3x59"},
            "a new process counts its history at once": {_REPEATED_DOLLARS: "0+0x100 900+0x149"},
        },
    ),
    "TeamBudgetSpent": Case(
        at=20,
        series={_SPENT_TODAY: flat(720, 20), _BUDGET: flat(500, 20)},
        labels={"team": "vision"},
        summary="The runs of team vision have cost $720.00 in 24 hours, more than its budget.",
        silent={
            "no more than the budget": {_SPENT_TODAY: flat(500, 20)},
            "a team without a budget": {_BUDGET: "", series(TEAM_BUDGETS, team="research"): flat(1, 20)},
            "for ten minutes only": {_SPENT_TODAY: "720+0x10 480+0x10"},
        },
    ),
}
