"""What is made of charts/: their schemas and READMEs, from the comments of values.yaml; vendoring and lint.

Not here: the charts (charts/), nor building helm. Called by the Makefile, tests, and who installs.
"""
