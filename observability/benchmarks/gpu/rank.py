"""The platform's rank, which also writes what it has used: `python -m observability.benchmarks.gpu.rank TASK_FILE`."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import torch

from observability.benchmarks.gpu.measure import USED_FILE
from training.launch.rank import main


def used() -> dict[str, str | int]:
    """The device, the most bytes that tensors took on it (of a CPU: the process), and the versions of torch and CUDA."""
    is_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {
        "device": torch.cuda.get_device_name() if is_gpu else "CPU",
        "peak_bytes": torch.cuda.max_memory_allocated()
        if is_gpu
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "torch": torch.__version__,
        "cuda": (torch.version.cuda or "none") if is_gpu else "none",
    }


if __name__ == "__main__":
    main(sys.argv[1:])
    Path(sys.argv[1]).with_name(USED_FILE).write_text(json.dumps(used()), encoding="utf-8")
