"""The demo: an access log is replayed into Kafka, a job is killed on purpose, a report shows the result.

`python -m infra.demo` runs all of it; `access_log`, `producer` and `report` can be used alone.
"""
