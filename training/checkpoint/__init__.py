"""Checkpoints: committed by a manifest written last, verified on load, written off the loop.

`manifest`, `storage`, `retention` and `store` import nothing heavy; `state` and `writer` import torch.
"""
