"""Unit tests of sluicegate.dead_letters."""
