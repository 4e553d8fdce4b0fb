"""Scenarios: traffic with faults, each validated for exactly-once."""
