"""The least-privilege IAM policy of whoever deploys an environment."""
