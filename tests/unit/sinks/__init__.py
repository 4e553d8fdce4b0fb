"""Tests of `sluicegate.protocol`: a simulated world, searches through it, and directed tests."""
