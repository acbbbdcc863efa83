"""From facts to findings: pure functions, which read nothing."""
