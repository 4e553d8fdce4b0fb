"""Tests of savepoints, of stopping a job, and of the preflight."""
