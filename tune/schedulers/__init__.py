"""What stops bad trials early, or replaces them: Ray Tune's schedulers, built from the settings.

* `check`: refuses what can never work. Imports no Ray.
* `perturb`: other values near a trial's, for population based training. Imports no Ray.
* `build`: makes the scheduler.
* `population`, `halving`: Ray's schedulers, corrected where they leave a search space or wait forever.
* `recorded`: any scheduler, told of what earlier drivers of the search have seen, with its decisions reported.
* `stopper`: ends the search.
"""
