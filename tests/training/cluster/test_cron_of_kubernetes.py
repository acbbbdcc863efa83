"""The times of a schedule are those that Kubernetes' CronJob controller starts jobs at: those of robfig/cron, which it is built with."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tests.engines.go_program import answer_of
from training.cluster.cron import parse_cron, zone_named

SUMS = """
github.com/robfig/cron/v3 v3.0.1 h1:WdRxkvbJztn8LMz/QEvLN5sBU+xKpSqwwUO1Pjr4qDs=
github.com/robfig/cron/v3 v3.0.1/go.mod h1:eQICP3HwyT7UooqI/z+Ov+PtYAWygg1TEWWzGIFLtro=
"""
PROGRAM = """
package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/robfig/cron/v3"
)

func main() {
	var asked []struct {
		Expression, Zone string
		After            int64
		Count            int
	}
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		panic(err)
	}
	answers := [][]int64{}
	for _, one := range asked {
		schedule, err := cron.ParseStandard("TZ=" + one.Zone + " " + one.Expression)
		if err != nil {
			panic(err)
		}
		times := []int64{}
		for at := time.Unix(one.After, 0); len(times) < one.Count; {
			if at = schedule.Next(at); at.IsZero() {
				break
			}
			times = append(times, at.Unix())
		}
		answers = append(answers, times)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		panic(err)
	}
}
"""
# Clocks change by an hour or half of one, in spring at midnight, or never; one is 45 minutes off.
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Africa/Cairo",
)
STARTS = (datetime(2027, 3, 1, tzinfo=UTC), datetime(2027, 9, 1, 12, 34, 56, tzinfo=UTC))
EXPRESSIONS, TIMES = 300, 1_000


def part(draw: random.Random, low: int, high: int) -> str:
    """A part of a field."""
    first, last = sorted((draw.randint(low, high), draw.randint(low, high)))
    step = draw.choice([1, 1, 2, 3, 5, 7])
    return draw.choice(
        ["*", f"*/{step}", "?", str(first), f"{first}-{last}", f"{first}-{last}/{step}", f"{first}/{step}"]
    )


def expression(draw: random.Random) -> str:
    """Five fields, in which a star is as likely as anything else."""
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
    fields = [[part(draw, low, high) for _ in range(draw.choice([1, 1, 2]))] for low, high in bounds]
    return " ".join(draw.choice([",".join(field), "*"]) for field in fields)


@pytest.mark.extended
def test_the_next_times_of_random_schedules_are_those_of_the_controller(tmp_path: Path) -> None:
    draw = random.Random(9)
    asked = [
        {
            "Expression": expression(draw),
            "Zone": ZONES[number % len(ZONES)],
            "After": int(STARTS[number // len(ZONES) % 2].timestamp()),
            "Count": TIMES,
        }
        for number in range(EXPRESSIONS)
    ]
    answers = answer_of(PROGRAM, asked, requires=["github.com/robfig/cron/v3 v3.0.1"], sums=SUMS, folder=tmp_path)
    for one, expected in zip(asked, answers, strict=True):
        cron, zone = parse_cron(str(one["Expression"])), zone_named(str(one["Zone"]))
        for before, after in pairwise([one["After"], *expected]):
            found = cron.next_after(datetime.fromtimestamp(before, UTC), zone)
            assert found == datetime.fromtimestamp(after, UTC), (one, before)
