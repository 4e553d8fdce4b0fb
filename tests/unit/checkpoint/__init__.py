"""Tests of savepoints and of stopping a job."""
