"""Tests of the reconcilers, as tables of rules."""
