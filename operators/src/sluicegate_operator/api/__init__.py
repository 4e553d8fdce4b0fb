"""The resources of sluicegate.dev/v1alpha1 as typed, frozen dataclasses.

Their schemas, parsing and rendering are derived from the dataclasses (`fields`, `codec`, `openapi`).
"""
