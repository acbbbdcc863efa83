"""Tests of the program that copies a bucket to the datasets."""
