"""What the ranks of data parallelism send each other in place of whole gradients."""
