"""Tests of the images of a sandbox's real nodes."""
