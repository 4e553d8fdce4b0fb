"""The jobs that come with Sluicegate: one short module each, wiring only.

Not a library: nothing imports from here. Each module is run by `python -m` or by spark-submit.
"""
