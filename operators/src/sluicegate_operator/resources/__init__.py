"""The resources as typed, frozen dataclasses; their schemas, parsing and rendering come from these.

Not here: what is done about them (`reconcile`). The group is `sluicegate.dev`, one version.
"""
