"""The contract between a driver's process and whatever deploys it, such as the operator.

`environment` names the variables that configure a driver, `progress` reports how far it is, and
`termination` says why it ended. Exit codes are in `sluicegate.errors`.
"""
