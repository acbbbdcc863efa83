"""Searchers: which values the next trial gets. They know nothing of Ray and start nothing."""
