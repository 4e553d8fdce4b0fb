"""Generates schemas and READMEs of the charts from the comments in values.yaml; vendors and lints."""
