"""Tests of `sluicegate.console`, on checkpoints that the real storage code wrote."""
