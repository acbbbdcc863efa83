"""Networks by name.

* `registry`, `options`, `factories`: names and options of the models, and factories of your own; light, for the
  command line.
* `mlp`, `simple_cnn`, `resnet`: the models; `images`: what those that read images share.
"""

from __future__ import annotations

from training.models.registry import ModelSpec, build, find, names, validate

__all__ = ["ModelSpec", "build", "find", "names", "validate"]
