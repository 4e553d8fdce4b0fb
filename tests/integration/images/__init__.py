"""Tests of the images: their recipes and start scripts, and the content of built images.

tests/e2e runs the images.
"""
