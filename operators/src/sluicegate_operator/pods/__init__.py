"""Manifests of what the operator creates for a job: the driver's pod and the template of its executors.

The functions are pure. `driver.validate` must accept a job before `driver.driver_pod` builds its pod.
"""
