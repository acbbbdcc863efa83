"""From the cluster to facts, by its API and the caller's permissions; nothing is judged here."""
