"""Search spaces: which settings vary between trials, over which values. Imports neither Ray nor Optuna."""
