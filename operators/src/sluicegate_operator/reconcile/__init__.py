"""What to do about a resource: pure functions without I/O and without a clock of their own.

Each kind has one function (`reconcile_job`, `reconcile_volume`, `reconcile_savepoint`) that compares
the resource with what is observed of it and returns the new status and actions. The functions are
level-based: they act on the present state and not on past events, so they may run at any time.
"""
