"""Unit tests of sluicegate.lookups."""
