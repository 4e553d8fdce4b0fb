"""Tests of the API types and their schemas."""
