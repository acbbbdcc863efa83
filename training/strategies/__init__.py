"""Strategies: how a model is distributed over the ranks. The protocol is `strategy.Strategy`."""
