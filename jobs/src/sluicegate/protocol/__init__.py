"""The commit protocol: pure, no I/O, no Spark. Simulated to death by tests/unit/protocol.

The architecture in one line: `coordinator` yields the `effects` of an epoch one by one,
`effects.drive` performs them on the `ports`, and the phases it passes are legal by one table.
"""
