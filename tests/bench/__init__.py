"""`make bench`: compares the speed of Sluicegate with that of its peers on this machine.

These are not tests: pytest collects nothing here, and no time is asserted. `__main__` is the command, `plan`
and `growth` define the comparisons, `throughput`, `latency` and `start_time` run one contender each in its
own process (`contender`, `reader` with `table_watch`), and `recovery` kills the drivers of a supervised job.
`distant_broker` is reached through `delaying_proxy`. `inputs`, `produce` and `paced` fill the sources, `rows`
and `queries` are what runs on Spark, and `sinks` and `readback` check what was written. `figures`, `epochs`
and `phases` do the arithmetic, `report` prints, and `page` writes the report page from the results of several
runs (`joined`).
"""
