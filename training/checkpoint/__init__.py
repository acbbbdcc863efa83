"""Checkpoints: committed by a manifest that is written last, verified on load, written in a thread.

`manifest`, `storage`, `retention` and `store` import nothing heavy; `stateful`, `state`, `host_copy` and `writer` import torch.
"""
