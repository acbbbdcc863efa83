"""The baseline for per-step overhead: a plain PyTorch DDP loop, as in its tutorial.

Usage: `torchrun --nproc-per-node N -m observability.benchmarks.bare_ddp SETTINGS.json`. The model measures the time (`timed_model.py`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from training.config.schema import TrainingSettings
from training.data import registry as datasets
from training.models import registry as models


def training_tensors(settings: TrainingSettings) -> TensorDataset:
    """The training split in memory, as the tutorial's `DataLoader` needs it."""
    split = datasets.load_dataset(settings.data).train
    return TensorDataset(*split.read(np.arange(len(split))))


def main(settings_file: str) -> None:
    """Train for `loop.max_steps` steps."""
    settings = TrainingSettings.model_validate_json(Path(settings_file).read_text(encoding="utf-8"))
    torch.set_num_threads(settings.scale.cpus_per_worker)
    dist.init_process_group("gloo")
    torch.manual_seed(settings.run.seed)
    data = training_tensors(settings)
    model = DistributedDataParallel(models.build_model(settings.model, datasets.load_dataset(settings.data).spec))
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.optimizer.learning_rate, fused=True)
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data, drop_last=True)
    loader = DataLoader(
        data, batch_size=settings.loop.global_batch // dist.get_world_size(), sampler=sampler, drop_last=True
    )
    step = 0
    while step < (settings.loop.max_steps or 0):
        sampler.set_epoch(step)
        for inputs, labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step == settings.loop.max_steps:
                break
    dist.barrier()  # gloo may abort if a rank exits while another still communicates
    dist.destroy_process_group()
    # The measurement is written. A thread of torch that outlives the interpreter aborts the process now and then.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
