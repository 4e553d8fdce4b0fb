"""The work of a worker process, one module for each kind of task."""
