"""Tests of the generic Kubernetes client."""
