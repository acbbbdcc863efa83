"""Strategies: how a model is spread over the ranks. The protocol is `strategy.Strategy`."""
