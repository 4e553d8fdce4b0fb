"""Unit tests of the operator: API types, reconcilers, pod manifests and storage tasks."""
