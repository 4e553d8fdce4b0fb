"""Tests of the toolchain."""
