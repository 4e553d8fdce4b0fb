"""Tests of the tools for machines without an image registry."""
