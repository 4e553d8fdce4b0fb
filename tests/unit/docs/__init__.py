"""Tests of the pages: docs/, README.md and CONTRIBUTING.md."""
