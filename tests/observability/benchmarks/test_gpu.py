"""The benchmark of GPUs: refused without one, tried with small models on a CPU, and its arithmetic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.spec.errors import ExitStatus
from observability.benchmarks.gpu.__main__ import main
from observability.benchmarks.gpu.cases import Case, Device, groups
from observability.benchmarks.gpu.measure import Measured, Round, columns
from training.config.load import validate_names
from training.config.schema import TrainingSettings


def test_a_machine_without_a_gpu_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["--json", str(tmp_path / "bench")]) == ExitStatus.REFUSED
    said = capsys.readouterr().err
    assert "measures on an NVIDIA GPU, and this machine has none that CUDA_VISIBLE_DEVICES shows" in said
    assert "--device cpu" in said
    assert not (tmp_path / "bench").exists()


def test_wrong_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, value, said in (
        ("--only", "atention", "no such group"),
        ("--steps", "0", "must be at least 1"),
        ("--only", "all-reduce", "needs 2 GPUs or more"),
    ):
        assert main(["--device", "cpu", "--json", str(tmp_path / "bench"), option, value]) != ExitStatus.DONE
        assert said in capsys.readouterr().err
        assert not (tmp_path / "bench").exists()


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_the_cases_of_a_group_are_valid_and_differ_in_one_setting(device: Device) -> None:
    for group in groups(device, steps=5):
        dumps = [case.settings.model_dump(mode="json") for case in group.cases]
        assert len(dumps) >= 2, group.name
        for case, dump in zip(group.cases, dumps, strict=True):
            validate_names(case.settings)
            assert case.settings.scale.gpu is (device == "gpu")
            changed = [
                f"{section}.{key}"
                for section, values in dump.items()
                for key in values
                if any(other[section][key] != values[key] for other in dumps)
            ]
            assert changed == [case.name.partition("=")[0]]


@pytest.mark.extended
def test_a_trial_on_a_cpu_measures_what_ran_and_says_that_it_is_no_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--device", "cpu", "--only", "attention", "--rounds", "1", "--steps", "3"]
    assert main([*options, "--json", str(tmp_path)]) == ExitStatus.DONE
    said = capsys.readouterr().out
    assert "these figures say nothing about a GPU" in said
    assert "device CPU" in said
    [file] = tmp_path.glob("gpu-*.json")
    assert file.with_suffix(".md").read_text().strip() in said
    math, flash = json.loads(file.read_text())["groups"]["attention"]
    for case, kernel in ((math, "math"), (flash, "flash")):
        [one] = case["rounds"]
        assert case["name"] == f"compute.attention={kernel}"
        assert f"computed attention with the kernel {kernel}" in one["notices"][0]
        assert one["peak_bytes"] > 0
        assert 0 < one["data_seconds"] < one["seconds"]


def rounds(*seconds: float) -> list[Round]:
    """Rounds of these step times."""
    hardware = {"device": "H200"}
    return [
        Round(seconds=one, data_seconds=one / 4, samples=32, loss=0.5, peak_bytes=2**30, hardware=hardware, notices=[])
        for one in seconds
    ]


def test_a_case_is_compared_with_the_first_round_by_round() -> None:
    plain, fast, failed = (Case(name=name, settings=TrainingSettings()) for name in ("a", "b", "c"))
    results = [
        Measured(case=plain, rounds=rounds(0.1, 0.2, 0.4)),
        Measured(case=fast, rounds=rounds(0.05, 0.1, 0.1)),
        Measured(case=failed, problem="SettingsError: that kernel cannot compute"),
    ]
    first, second, third = columns(results)
    assert first == ["a", "200.00 ms", "160", "1", "25%", "1,024 MiB", "0.5000", ""]
    assert second == ["b", "100.00 ms", "320", "0.500 (0.250 to 0.500)", "25%", "1,024 MiB", "0.5000", ""]
    assert third == ["c", *["-"] * 6, "SettingsError: that kernel cannot compute"]
