"""The console: pages that say what every job is doing and why, read from checkpoints alone.

It writes nothing and needs neither a driver nor its sinks. `reader` reads, `model` and `verdict` are
pure, `app` serves. starlette, uvicorn and jinja2 come with the extra `sluicegate[ui]`.
"""
