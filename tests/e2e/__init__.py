"""The platform as its users meet it: helm, kubectl and pods on a kind cluster (`make e2e`).

`cluster` runs kubectl and helm, `platform` is what is installed and how it is fed and verified,
`manifests` has the resources. The files are run in the order of their numbers, on one cluster: the
last uninstalls. Not for what can be seen without a cluster: tests/operator, tests/charts.
"""
