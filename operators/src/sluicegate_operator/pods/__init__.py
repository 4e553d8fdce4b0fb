"""Manifests of what the operator creates for a job: the driver's pod, and a template of executors.

Pure: from a job, an action and a place to a dictionary. Not here: sending it (`cluster`), and when
(`reconcile`). Whoever reads a spec calls `checks.refused` first; `driver.driver_pod` makes the pod.
"""
