"""Tests of sluicegate.lookups."""
