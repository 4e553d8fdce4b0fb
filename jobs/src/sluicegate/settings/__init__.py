"""The settings of a job: one schema for Python, a YAML file, the environment and the command line.

Needs no package but Python itself and `sluicegate.protocol.errors`, so that the operator can use
the same. `schema` reads and checks any of them; `epoch` and `restart` are those of DESIGN.md
section 3. Not here: what a setting does (spark, cli).
"""
