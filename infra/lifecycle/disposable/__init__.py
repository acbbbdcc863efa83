"""Disposable test clusters: their stack, and their life from `up` to `down`."""
