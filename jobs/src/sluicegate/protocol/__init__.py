"""The commit protocol, pure: no I/O, no Spark (docs/concepts/protocol.md).

`coordinator.run_epoch` yields the `effects` of one epoch one by one: stage, decide, apply.
`effects.run_effects` performs them on `ports`. The simulation in tests/robustness/model/protocol
performs the same effects, with a crash, a lost reply or another driver between any two.
"""
