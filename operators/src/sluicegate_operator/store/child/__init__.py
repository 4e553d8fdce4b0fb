"""What a child process does: one module a kind of task. Called by `store.__main__` only."""
