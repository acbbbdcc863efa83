"""When what happened: lanes of a job's queue, driver and pods, or of a run's attempts and steps, and the plot of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from observability.postmortem.case import Case
from observability.postmortem.record import JobRecord, PodRecord
from observability.quantities import duration
from observability.report.drawing import FULL_WIDTH, Plot, figure_of, svg_of
from observability.report.palette import BAD, GRID, INK, MUTED, PART_COLOURS, TEST, TRAIN, VALIDATION

Part = Literal["waits", "starts", "runs"]

_COLOURS: dict[Part, str] = {"waits": PART_COLOURS[3], "starts": VALIDATION, "runs": TRAIN}
_WORDS: dict[Part, str] = {"waits": "waits for quota or a node", "starts": "starts", "runs": "runs"}
_MOST_PODS = 24


@dataclass(frozen=True, kw_only=True)
class Span:
    """A part of a lane; times are Unix times."""

    start: float
    end: float
    part: Part


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A moment of a lane that is a failure, or not."""

    time: float
    is_bad: bool


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A row of the timeline."""

    title: str
    spans: Sequence[Span]
    marks: Sequence[Mark] = ()


def lanes_of(case: Case) -> list[Lane]:
    """The rows of a case, in order; those without a time are left out."""
    found = [*(_of_job(case.record, case.now) if case.record else ()), *(_of_run(case) if case.history else ())]
    return [lane for lane in found if lane.spans or lane.marks]


def draw(case: Case) -> Plot | None:
    """The timeline; None if nothing has a time."""
    lanes = lanes_of(case)
    times = [time for lane in lanes for span in lane.spans for time in (span.start, span.end)]
    times += [mark.time for lane in lanes for mark in lane.marks]
    if not times:
        return None
    origin, length = min(times), max(max(times) - min(times), 1.0)
    steps = case.history.steps if case.history else []
    with figure_of((FULL_WIDTH[0], 1.1 + 0.26 * len(lanes) + (1.5 if steps else 0))) as figure:
        rows = 2 if steps else 1
        ratios = [0.3 + 0.26 * len(lanes), 1.4][:rows]
        axes = figure.subplots(rows, 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
        _draw_lanes(axes[0], lanes, origin=origin)
        if steps:
            axes[1].plot(
                [step.time - origin for step in steps], [step.step for step in steps], color=TEST, linewidth=1.4
            )
            axes[1].set_ylabel("step")
            axes[1].yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes[-1].set_xlim(-0.01 * length, 1.03 * length)
        axes[-1].xaxis.set_major_formatter(lambda value, _: duration(value) if value > 0 else "0")
        axes[-1].set_xlabel(f"since {datetime.fromtimestamp(origin, UTC):%Y-%m-%d %H:%M:%S} UTC")
        used = {span.part for lane in lanes for span in lane.spans}
        handles = [Patch(color=_COLOURS[part], label=text) for part, text in _WORDS.items() if part in used]
        figure.legend(handles=handles, loc="outside upper right", ncols=3, fontsize=8.5)
        return Plot(key="timeline", title="Timeline", svg=svg_of(figure, "timeline"), is_wide=True, note=_note(case))


def _draw_lanes(axes: Axes, lanes: Sequence[Lane], *, origin: float) -> None:
    for row, lane in enumerate(lanes):
        for span in lane.spans:
            colour = _COLOURS[span.part]
            axes.barh(row, span.end - span.start, left=span.start - origin, color=colour, height=0.6)
        for mark in lane.marks:
            colour, symbol, size = (BAD, "X", 46) if mark.is_bad else (INK, "|", 30)
            # A line is not filled, so it has no edge.
            edge = GRID if mark.is_bad else None
            at = [mark.time - origin]
            axes.scatter(at, [row], marker=symbol, s=size, color=colour, edgecolors=edge, linewidths=0.6, zorder=3)
    axes.set_yticks(range(len(lanes)), [lane.title for lane in lanes])
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=MUTED)
    axes.grid(visible=False, axis="y")


def _note(case: Case) -> str:
    pods = len(case.record.pods) if case.record else 0
    more = f" {_MOST_PODS} of {pods} pods, those that failed first." if pods > _MOST_PODS else ""
    return f"A cross is a failure, a line a checkpoint or a restart.{more}"


def _of_job(record: JobRecord, now: datetime) -> Iterator[Lane]:
    until = record.ended or now
    admitted = next(
        (one.time for one in (record.workload.conditions if record.workload else ()) if one.type == "Admitted"), None
    )
    spans = _spans(
        (record.created, "waits"), (admitted or record.started, "starts"), (record.driver_started, "runs"), until=until
    )
    evictions = [one.time.timestamp() for one in (record.workload.evictions if record.workload else ()) if one.time]
    is_bad = record.ending not in {"", "Complete"}
    end = [Mark(time=record.ended.timestamp(), is_bad=True)] if is_bad and record.ended else []
    yield Lane(title="job", spans=spans, marks=[*(Mark(time=at, is_bad=True) for at in evictions), *end])
    for pod in sorted(record.pods.values(), key=_rank)[:_MOST_PODS]:
        yield _of_pod(pod, until)


def _of_pod(pod: PodRecord, until: datetime) -> Lane:
    over = pod.ended or pod.gone or until
    bad = [end.finished for _, end in pod.ends if end.finished] + [one.time for one in pod.disruptions if one.time]
    return Lane(
        title=pod.name if len(pod.name) <= 44 else f"{pod.name[:20]}…{pod.name[-23:]}",
        spans=_spans((pod.created, "waits"), (pod.scheduled, "starts"), (pod.started, "runs"), until=over),
        marks=[Mark(time=at.timestamp(), is_bad=True) for at in bad],
    )


def _rank(pod: PodRecord) -> tuple[bool, str, str]:
    return not (pod.ends or pod.disruptions or pod.reason), pod.kind, str(pod.created)


def _spans(*parts: tuple[datetime | None, Part], until: datetime) -> list[Span]:
    """The parts that have begun, each until the next one."""
    begun = [(at.timestamp(), part) for at, part in parts if at is not None]
    ends = [at for at, _ in begun[1:]] + [until.timestamp()]
    return [Span(start=at, end=max(at, end), part=part) for (at, part), end in zip(begun, ends, strict=True)]


def _of_run(case: Case) -> Iterator[Lane]:
    """A lane for each worker group, from the end of the one before."""
    history = case.history
    assert history is not None, "only called for a run"
    if history.started is None:
        return
    failures = [report.time.timestamp() for report in case.reports if report.time]
    resumed = [history.resumed.time] if history.resumed else []
    # A failure that ends the run is followed by its finish only.
    restarted = [at for at in failures if any(one.time >= at and one.name != "finish" for one in history.phases)]
    begins = sorted({history.started.time, *resumed, *restarted})
    for number, begin in enumerate(begins):
        end = begins[number + 1] if number + 1 < len(begins) else history.last_time
        if begin >= end:
            continue
        ready = next((one.time for one in history.training_starts if begin <= one.time <= end), end)
        spans = [Span(start=begin, end=ready, part="starts"), Span(start=ready, end=end, part="runs")]
        marks = [Mark(time=one.time, is_bad=False) for one in history.checkpoints if begin <= one.time < end]
        marks += [Mark(time=at, is_bad=True) for at in failures if begin < at <= end]
        yield Lane(title=f"attempt {number + 1}", spans=spans, marks=marks)
