"""The tests."""

END_VARIABLE = "RTP_TESTS_END"
"""Environment variable of `tests.__main__`: a file that a session writes at its end, by which one that a test has ended is told apart."""
