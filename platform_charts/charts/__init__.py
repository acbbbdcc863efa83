"""Third-party charts: which ones, in which version, with which values and images."""
