"""The images: their recipes and start scripts, and the content of those that were built.

tests/e2e runs them.
"""
