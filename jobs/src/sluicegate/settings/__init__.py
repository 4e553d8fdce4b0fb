"""The settings of a job: one schema for Python, a YAML file, the environment and the command line.

Needs no package but Python itself and `sluicegate.errors`, so that the operator can use it too.
`schema` reads and validates any of them; `epoch` and `restart` are the settings themselves
(docs/guides/settings.md).
"""
