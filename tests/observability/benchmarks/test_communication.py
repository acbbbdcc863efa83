"""The benchmark of communication: what it compares, how it counts and computes bytes, what it refuses, and a short real one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from infra.spec.errors import ExitStatus
from observability.benchmarks.communication import command
from observability.benchmarks.communication.cases import CASES, STEPS, chosen
from observability.benchmarks.communication.measure import Measured, Round, plan
from observability.benchmarks.communication.table import expected_seconds, rows
from observability.benchmarks.communication.wire import WireCounter
from observability.benchmarks.gate.history import read_results
from observability.benchmarks.hosts import Sent, parse_counters
from tests.engines.hosts import hosts
from training.config.load import validate_names
from training.errors import SettingsError

NAMED = {case.name: case for case in CASES}
PLAIN, FLAT = NAMED["plain"], NAMED["plain-2-per-host"]


def test_a_case_is_valid_and_differs_from_its_baseline_in_what_it_names() -> None:
    for case in CASES:
        settings = case.settings(hosts=4)
        validate_names(settings)
        baseline = FLAT if case.ranks_per_host == 2 else PLAIN
        plain, changed = baseline.settings(hosts=4).model_dump(), settings.model_dump()
        differing = {
            f"{one}.{key}" for one, values in changed.items() for key in values if values[key] != plain[one][key]
        }
        named = {f"{one}.{key}" for one, values in case.sections.items() for key in values}
        # powersgd-2 has the default rank.
        assert differing | {"communication.rank"} == named | {"communication.rank"}, case.name
        assert settings.loop.max_steps == STEPS
        samples = int(str(settings.data.options["samples"]))
        assert samples >= STEPS * settings.loop.global_batch, "an epoch ends before the run"


def test_cases_are_measured_beside_the_first_with_as_many_ranks_on_a_host() -> None:
    def names(*asked: str) -> list[list[str]]:
        return [[case.name for case in group] for group in chosen(asked or None)]

    of_one, of_two = (tuple(case.name for case in CASES if case.ranks_per_host == number) for number in (1, 2))
    assert names() == [list(of_one), list(of_two)]
    assert names("bf16") == [["plain", "bf16"]]
    assert names("plain") == [["plain"]]
    assert names("hierarchical") == [["plain-2-per-host", "hierarchical"]]
    with pytest.raises(SettingsError, match=r"--cases powersgd-3: no such case\n.*did you mean powersgd-"):
        chosen(["plain", "powersgd-3"])


def computed(name: str) -> float:
    """Bytes that each of four hosts sends in a step of a case."""
    ((measured,),) = plan([[NAMED[name]]], hosts=4)
    return measured.expected_bytes


def test_bytes_are_computed_for_a_ring_over_all_ranks() -> None:
    weights = 4 * (4 * 320 * 321 + 10 * 321)
    assert computed("plain") == 2 * 3 / 4 * weights
    assert computed("fp16") == computed("plain") / 2
    # Of each layer two columns of PowerSGD, and its bias. The last one's 320 x 10 is larger than (320 + 10) x 2 too.
    assert computed("powersgd-1") == 2 * 3 / 4 * 4 * (4 * (640 + 320) + (330 + 10))
    assert computed("diloco-4") == computed("local-sgd-4") == computed("plain") / 4
    assert computed("sharded-optimizer") == 3 / 4 * (2 * weights + weights)
    # Two ranks of a host: one ring of eight, or two rings of four for half the gradient each.
    assert computed("plain-2-per-host") == 2 * 7 / 8 * weights
    assert computed("hierarchical") == pytest.approx(2 * (2 * 3 / 4 * weights / 2))


def test_what_was_sent_is_read_as_the_kernel_writes_it_and_interpolated_between_samples() -> None:
    text = (
        "Inter-|   Receive                                                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n"
        "    lo:  1000      10    0    0    0     0          0         0     1000      10    0    0    0     0       0          0\n"
        "rtp123o1:1514       1    0    0    0     0          0         0       66       1    0    0    0     0       0          0\n"
    )
    found = parse_counters(text)
    assert found == {"lo": Sent(frames=10, bytes=1000), "rtp123o1": Sent(frames=1, bytes=1514)}
    assert found["rtp123o1"].payload == 1448
    wire = WireCounter([])
    for moment, count in ((10.0, 0), (11.0, 100), (13.0, 500)):
        wire.add(moment, [Sent(frames=count / 10, bytes=count), Sent(frames=0, bytes=7)])
    assert wire.sent_between(10.5, 12.0) == [Sent(frames=25, bytes=250), Sent(frames=0, bytes=0)]
    assert wire.sent_between(10.0, 13.0)[0].bytes == 500
    for start, end in ((9.9, 11.0), (11.0, 13.1)):
        with pytest.raises(ValueError, match="not read around"):
            wire.sent_between(start, end)


def test_wrong_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({"rounds": 0}, "--rounds 0 --rate 50: at least 1 round"),
        ({"megabits": 0.0}, "--rounds 1 --rate 0: at least 1 round, and a rate above 0"),
        ({"names": ["fp61"]}, "--cases fp61: no such case"),
    ]
    for arguments, said in cases:
        options: dict[str, object] = {"names": None, "rounds": 1, "megabits": 50.0, **arguments}
        status = command.run(**options, file=tmp_path / "bench" / "one.json", scratch=tmp_path)  # type: ignore[arg-type]
        assert status == ExitStatus.WRONG_INPUT
        assert said in capsys.readouterr().err
        assert not (tmp_path / "bench").exists()


def test_a_user_or_a_machine_that_cannot_create_hosts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(tools: str) -> str:
        folder = tmp_path / tools
        folder.mkdir()
        for tool in tools.split():
            (folder / tool).touch(mode=0o755)
        monkeypatch.setenv("PATH", str(folder))
        status = command.run(None, rounds=1, megabits=50, file=tmp_path / "one.json", scratch=tmp_path)
        assert status == ExitStatus.REFUSED
        return capsys.readouterr().err

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "only root may create; this is user 1000" in said("ip tc")
    for missing, there in (("ip", "tc"), ("tc", "ip")):
        message = said(there)
        assert f"there is no {missing} on PATH" in message
        assert "apt-get install iproute2" in message


def rounds(*seconds: float, samples: int = 1024) -> list[Round]:
    """Rounds of these step times."""
    return [
        Round(
            seconds=one,
            samples=samples,
            sent=2_600_000,
            payload=2_500_000,
            exposed=one / 2,
            profiled_exposed=0.3,
            profiled_seconds=0.4,
            loss=1.25,
        )
        for one in seconds
    ]


def test_a_case_is_compared_by_time_per_sample_round_by_round() -> None:
    plain = Measured(case=PLAIN, expected_bytes=2_484_540, rounds=rounds(0.4, 0.5, 0.8))
    larger = Measured(
        case=NAMED["accumulation-4"], expected_bytes=25_080, baseline=plain, rounds=rounds(0.8, 0.8, 0.8, samples=4096)
    )
    first, second = rows([plain, larger])
    assert first[:3] == ["plain", "500 ms (400 to 800)", "1"]
    assert second[:3] == ["accumulation-4", "800 ms (800 to 800)", "0.40 (0.25 to 0.50)"]
    assert first[3:] == ["2,600", "2,500", "2,485", "75%", "50%", "1.250"]
    assert second[5] == "25.1"
    assert larger.comparison(plain).ratios == pytest.approx([0.5, 0.4, 0.25])
    groups = plan([[PLAIN]], hosts=4)
    once, slower = (expected_seconds(groups, rounds=1, megabits=rate) for rate in (50, 5))
    transfer = STEPS * groups[0][0].expected_bytes * 8e-6
    assert slower - once == pytest.approx(transfer / 5 - transfer / 50)
    assert expected_seconds(groups, rounds=3, megabits=50) > 2 * once - 12 > once


@pytest.mark.extended
def test_two_hosts_count_what_was_computed_and_half_of_it_under_bf16(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hosts(1):
        pass  # skips without the rights
    file = tmp_path / "bench" / "20260101-000000.json"
    assert command.run(["bf16"], rounds=1, megabits=100, file=file, scratch=tmp_path, count=2) == ExitStatus.DONE
    printed = capsys.readouterr()
    assert "2 cases, 2 hosts with links of 100 Mbit/s, 1 round: about" in printed.err
    assert "| bf16 | " in printed.out
    assert file.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    plain, bf16 = json.loads(file.read_text())["communication"]["cases"]
    for case in (plain, bf16):
        (one,) = case["rounds"]
        assert one["payload"] == pytest.approx(case["expected_bytes"], rel=0.1)
        assert one["sent"] > one["payload"]
        assert 0 < one["exposed"] < one["seconds"]
        assert 0 < one["profiled_exposed"] < one["profiled_seconds"]
        # The slowest part of a step cannot be faster than its link.
        assert one["seconds"] > case["expected_bytes"] * 8 / 100e6
    assert bf16["rounds"][0]["loss"] == pytest.approx(plain["rounds"][0]["loss"], rel=0.05)
    (comparison,) = read_results(file).comparisons.values()
    assert comparison.ratio == pytest.approx(bf16["rounds"][0]["seconds"] / plain["rounds"][0]["seconds"])
