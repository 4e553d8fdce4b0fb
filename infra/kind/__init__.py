"""A Kubernetes cluster of one node on this machine, created by kind, for tests and evaluation.

Where no node image can be pulled, infra/offline/kind_node builds one. Not for production.
"""
