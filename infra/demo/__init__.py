"""The demo: an access log replayed into Kafka, a job killed on purpose, a report that proves it.

`python -m infra.demo` runs it all; `generate`, `replay` and `report` are of use by themselves too.
"""
