"""Tests of the AWS components, over the recorded graph of every environment."""
