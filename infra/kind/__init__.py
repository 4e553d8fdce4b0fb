"""A Kubernetes cluster of one node on this machine, by kind, for tests and for trying things.

With a node image of our own where none can be pulled (README.md beside this file). Not for
production. Called by the Makefile and the end-to-end tests.
"""
