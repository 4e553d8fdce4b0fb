"""What runs in the container of a driver's pod: `python -m sluicegate.pod`.

It restores a savepoint if it is told to, runs the user's main in this process, and sees to it that
the end says the truth: the exit code and the outcome file are what the operator goes by, and 0 means
that every decided epoch is in every sink. Not here: what the environment says (`settings.told`),
progress (`tracing.progress`). Nothing else imports this package.
"""
