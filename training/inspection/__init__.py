"""`make data`: reads a dataset before a run does, and says what is in it, what is damaged, and how fast it is read.

* `command`: what is read and printed.
* `scan`: every sample of a split, in several processes.
* `rates`: samples per second of one core and of the model's step, and the loader processes that follow from them.
* `sheet`: a picture of some samples.
"""
