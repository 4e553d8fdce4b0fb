"""Tests of the packaged jobs."""
