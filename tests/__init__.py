"""All tests of Sluicegate; the docstring of each folder describes what it tests."""
