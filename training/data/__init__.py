"""Datasets, sample order and data loading.

* `types`: the `Split` protocol, `DataBundle` and `Batch`.
* `order`: the samples of each step, rank and micro-batch, as pure functions that do not depend on loader workers.
* `place`: which of them a rank reads, where several ranks read the same.
* `sample_order`: the order of an epoch: that of a split that has one of its own, otherwise any.
* `loader`: reads batches in that order, in the rank's process or in prefetching worker processes.
* `loaders`: those of a rank, as the settings say.
* `ray_reader`: has the training split read by tasks of Ray Data instead.
* `registry`, `options`, `files`, `split_files`: names, options and files of the datasets. They import no torch.
* `digits`, `diabetes`, `synthetic`, `synthetic_text`, `text`, `cifar10`, `image_folder`, `tar_shards`, `parquet`: the datasets.
* `pixels`, `images`, `tar_index`, `tables`, `parquet_files`, `parquet_columns`, `parquet_targets`, `parquet_splits`: how they read samples.
* `tokenizer`: the vocabulary of a text. `classes`: names of classes. `holdout`, `fingerprint`: shared code.
"""
