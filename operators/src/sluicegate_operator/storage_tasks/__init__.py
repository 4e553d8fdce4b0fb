"""Work on an object store, done in a worker process for each task.

A process has only the keys and the endpoint of one volume, frees its memory when it ends, and can be
killed if a store hangs. `runner.run` runs one task, and `queue.TaskQueue` keeps the tasks of all
resources; both are plain asyncio and import no client of a store. `worker` is what the process does.
"""
