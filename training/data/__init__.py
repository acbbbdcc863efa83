"""Samples: which ones there are, in which order a step takes them, and how they reach the loop.

* `types`: what a dataset is to the loop (splits that read samples by id) and what a batch is.
* `order`: which samples a step, a rank and a micro-batch get: pure functions, independent of world size and loader
  processes.
* `loader`: turns that order into batches, in the rank itself or ahead of it in loader processes.
* `registry`, `options`, `files`: names, options and files of the datasets; light, for the command line.
* `digits`, `synthetic`, `cifar10`, `image_folder`: the datasets; `pixels`, `holdout`, `fingerprint`: what they share.
"""
