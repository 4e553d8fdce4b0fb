"""Sizes of memory: as Spark writes them, and what a pod needs beside the JVM's heap.

Source of the rule: Spark 4.1's `ResourceProfile.getResourcesForClusterManager` with the factor that
`spark.kubernetes.memoryOverheadFactor` documents for jobs that are not on the JVM. Called by
`driver`, `environment` and `conf`.
"""

from __future__ import annotations

import math

from sluicegate_operator.resources.job import PodSettings

_KIB = {"k": 1, "m": 1 << 10, "g": 1 << 20, "t": 1 << 30}

_FACTOR = 0.4
"""Of the heap: Python's workers, off-heap buffers and RocksDB live beside it."""

_LEAST_MIB = 384
"""`spark.executor.minMemoryOverhead`."""


def mib(size: str) -> int:
    """Return a size such as '2g' in MiB, rounded up; without a unit it is MiB, as Spark reads it."""
    unit = size[-1].lower()
    if unit.isdecimal():
        return int(size)
    return math.ceil(int(size[:-1]) * _KIB[unit] / _KIB["m"])


def heap_mib(pod: PodSettings) -> int:
    """Return the JVM's heap."""
    return mib(pod.memory)


def overhead_mib(pod: PodSettings) -> int:
    """Return the memory beside the heap."""
    if pod.memory_overhead:
        return mib(pod.memory_overhead)
    return max(int(_FACTOR * heap_mib(pod)), _LEAST_MIB)


def total_mib(pod: PodSettings) -> int:
    """Return what the container asks for, which is also its limit."""
    return heap_mib(pod) + overhead_mib(pod)
