"""Objectives: the loss, and the metrics reported with it. The protocol is `objective.Objective`."""
