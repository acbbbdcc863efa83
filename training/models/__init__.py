"""Models by name.

* `registry`, `options`: names and options of the models. They import no torch.
* `mlp`, `simple_cnn`, `resnet`: the models. `images`: shared code of the image models. `parts`: where a pipeline may cut a model.
"""
