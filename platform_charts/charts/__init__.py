"""Third-party Helm charts: archives, CRDs, values and images."""
