"""The regression gate: compares the newest benchmark results with an accepted baseline, in both directions."""
