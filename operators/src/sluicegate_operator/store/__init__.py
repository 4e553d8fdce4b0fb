"""What is done on an object store, in a child process for each task.

So a volume's keys and endpoint are one process's environment, memory is given back, and a store
that hangs is ended by killing who asks it. `running.run` does one task, `desk.TaskDesk` keeps
many and how they ended; both are plain asyncio and import no client of a store. `child` is what the
child process does. Not here: which task is due (`volumes`). Called by whoever wires the operator.
"""
