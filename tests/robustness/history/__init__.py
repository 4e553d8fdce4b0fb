"""The history of a long run, as JSON lines."""
