"""The command lines of the benchmarks whose programs import torch, MLflow or matplotlib."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final, Literal, get_args

from infra.spec.command_line import Number

ComparisonName = Literal[
    "checkpoint", "overhead", "metrics", "equal-bits", "whole-run", "tune", "asha", "data", "validation"
]
"""What `make bench` compares."""

_NAMED_ONLY: Final = ("scaling", "communication", "checkpoint_store")


def comparisons() -> argparse.ArgumentParser:
    """The command line of `python -m observability.benchmarks`."""
    made = argparse.ArgumentParser(
        prog="python -m observability.benchmarks",
        description="Compare the platform with its baselines, print a table and write a JSON file.",
    )
    made.add_argument("--rounds", type=Number(int, at_least=1), default=5, help="rounds per comparison (default 5)")
    made.add_argument(
        "--only",
        choices=[*get_args(ComparisonName), *_NAMED_ONLY],
        help="run only one comparison; scaling, communication and checkpoint_store run only if they are named",
    )
    made.add_argument(
        "--workers",
        type=Number(int, at_least=1),
        nargs="+",
        default=[1, 2, 4],
        help="numbers of workers of scaling (default 1 2 4)",
    )
    made.add_argument(
        "--megabytes", type=Number(int, at_least=1), default=1000, help="checkpoint of checkpoint_store (default 1000)"
    )
    made.add_argument("--cases", nargs="+", help="cases of communication, e.g. fp16 powersgd-2 (default all)")
    made.add_argument("--rate", type=float, default=50.0, help="Mbit/s of a link of communication (default 50)")
    made.add_argument(
        "--json", type=Path, default=Path(".local/bench"), help="directory of the JSON file (default .local/bench)"
    )
    return made


def fleet() -> argparse.ArgumentParser:
    """The command line of `python -m observability.benchmarks.fleet`."""
    made = argparse.ArgumentParser(
        prog="python -m observability.benchmarks.fleet",
        description="Measure what a simulated fleet costs a real Prometheus.",
    )
    made.add_argument("--nodes", type=int, default=1000, help="nodes, a tenth of them without GPUs (default 1000)")
    made.add_argument("--runs", type=int, default=300, help="training runs at a time (default 300)")
    made.add_argument("--minutes", type=float, default=10.0, help="how long Prometheus scrapes (default 10)")
    made.add_argument("--gpus", type=int, default=8, help="GPUs of a GPU node (default 8)")
    made.add_argument("--vcpus", type=int, default=96, help="virtual CPUs of a node (default 96, a p4d.24xlarge)")
    made.add_argument(
        "--json",
        type=Path,
        default=Path(".local/bench/fleet"),
        help="directory of the JSON file and the plot (default .local/bench/fleet)",
    )
    return made


def mlflow_history() -> argparse.ArgumentParser:
    """The command line of `python -m observability.benchmarks.mlflow_history`."""
    made = argparse.ArgumentParser(
        prog="python -m observability.benchmarks.mlflow_history",
        description="Measure what a long run costs MLflow's database, with all of its points and thinned.",
    )
    made.add_argument("url", help="an empty PostgreSQL database")
    made.add_argument("--points", type=int, default=10_000_000, help="points of the run (default 10 million)")
    return made


def power() -> argparse.ArgumentParser:
    """The command line of `python -m observability.benchmarks.gate.power`."""
    made = argparse.ArgumentParser(
        prog="python -m observability.benchmarks.gate.power",
        description="Measure how often the gate finds a change of ten percent, and how often it takes noise for one.",
    )
    made.add_argument("--rounds", type=int, default=40, help="rounds, of 40 s each on two cores (default 40)")
    made.add_argument("--json", type=Path, default=Path(".local/bench/power/rounds.json"), help="file of the rounds")
    return made
