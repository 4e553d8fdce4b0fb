"""The process of a driver's container: `python -m sluicegate.driver`.

It restores a savepoint if the environment says so, runs the user's main in this process, and ensures
that the exit code and the termination file tell the truth. Exit code 0 means that every decided epoch
is in every sink; the operator relies on it.
"""
