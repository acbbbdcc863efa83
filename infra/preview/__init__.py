"""The stack without an engine or an account: the recorded resource graph, its pictures and tables."""
