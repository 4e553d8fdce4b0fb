"""The invariants of exactly-once, and broken coordinators that they must catch."""
