"""Shows results: lines and a table for people, JUnit's XML for CI, a page to read and to pass on, JSON to compare."""
