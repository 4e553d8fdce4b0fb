"""Tests the platform as a user does: helm, kubectl and pods on a kind cluster (`make e2e`).

`cluster` runs kubectl and helm, `platform` feeds and verifies jobs, `manifests` has the resources. The
test files run in the order of their numbers on one cluster; the last one uninstalls. What needs no cluster is
tested in tests/integration/operator and tests/integration/charts.
"""
