"""Everything that checks Sluicegate. Each folder says in its own docstring what it claims."""
