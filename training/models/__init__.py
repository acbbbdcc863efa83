"""Networks by name.

* `registry`, `options`, `factories`: names and options of the models, and factories of your own; light, for the
  command line.
* `mlp`, `simple_cnn`, `resnet`: the models; `images`: what those that read images share.
"""
