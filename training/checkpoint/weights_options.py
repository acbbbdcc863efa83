"""The command line of `python -m training.checkpoint.weights`, without torch."""

from __future__ import annotations

import argparse
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m training.checkpoint.weights", description="Write the whole tensors of one state to a file."
    )
    made.add_argument("checkpoint", type=Path, help="folder of a checkpoint")
    made.add_argument("output", type=Path, help="file to write, e.g. model.safetensors")
    made.add_argument("--state", default="model", help="model (default), ema for the moving average, or optimizer")
    return made
