"""Tests of sluicegate.lookup."""
