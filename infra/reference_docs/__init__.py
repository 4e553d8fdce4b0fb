"""Writes docs/reference from the code: settings, commands, errors, resources, metrics, chart values."""
