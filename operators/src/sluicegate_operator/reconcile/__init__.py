"""What to do about a StreamingJob: one pure function, `job.reconcile`. No I/O, no clock of its own.

It is called again after anything changed, and may be called at any time: it acts on what is there,
not on what happened. Not here: reading a cluster, and doing what it says.
"""
