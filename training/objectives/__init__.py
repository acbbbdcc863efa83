"""Objectives: what is minimised, and which metrics are reported of it. The protocol is `objective.Objective`."""
