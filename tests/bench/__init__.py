"""`make bench`: compares the speed of Sluicegate with that of Spark's own sinks on this machine.

These are not tests: pytest collects nothing here, and no time is asserted. `__main__` is the command,
`plan` defines the comparisons, `throughput` and `latency` run one contender each in its own process
(`contender`, `reader`), `figures`, `epochs` and `phases` do the arithmetic, and `report` prints.
"""
