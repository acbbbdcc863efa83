"""What only a GPU can show: number formats, memory order, compilation, copies, attention, activation checkpointing, NCCL."""
