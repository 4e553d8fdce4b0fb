"""`make bench`: how fast Sluicegate is beside Spark's own sinks, measured on this machine.

Not tests: pytest collects nothing here, and no time is ever asserted. `__main__` is the command;
`plan` says what is compared, `throughput` and `latency` run one contender each in a process of its
own (`contender`, `reader`), `figures`, `epochs` and `phases` are the arithmetic, `report` prints.
"""
