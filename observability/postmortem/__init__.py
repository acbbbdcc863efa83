"""What a job or a run died of: its record, the first cause by a table of rules, a page and a text for the terminal."""
