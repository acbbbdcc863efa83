"""Hooks that send gradients in half the bytes; the weights, and the gradients that the optimizer sees, stay float32.

torch's own, behind names of ours: it refuses a hook by the name of `bf16_compress_hook` where CUDA is missing, but Gloo sums bfloat16 too.
Their annotations are types and not text, which DDP compares; this module therefore has no `from __future__ import annotations`.
"""

import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed import ProcessGroup
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook
from torch.futures import Future


def send_fp16(group: ProcessGroup, bucket: GradBucket) -> Future[Tensor]:
    """The mean of a bucket over the ranks, summed in float16."""
    return fp16_compress_hook(group, bucket)


def send_bf16(group: ProcessGroup, bucket: GradBucket) -> Future[Tensor]:
    """The mean of a bucket over the ranks, summed in bfloat16."""
    return bf16_compress_hook(group, bucket)


CASTS = {"fp16": send_fp16, "bf16": send_bf16}
"""By the name of `communication.hook`."""

SENT_AS = {"none": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
"""The type in which gradients are summed, by the same name."""
