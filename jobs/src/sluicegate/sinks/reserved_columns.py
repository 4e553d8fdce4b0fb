"""Reserved column names of outputs and staged rows; a module without imports, shared by sinks and Spark."""

from __future__ import annotations

PART = "__part"
"""The field of a sink's struct that holds a row's part, if the sink has several."""


REFUSED = "__refused"
"""A column by which an output refuses its own rows: the reason, null for a good row.

No sink gets a refused row; it becomes a dead letter, like a row that a sink refuses (rule 10). One
evaluation of the row decides both (rule 7): two outputs that each test whether a row is good could both
have it, or neither.
"""


SOURCE = "__source"
"""A column that no sink gets: where a row came from, for the dead letter of a refused row.

A struct, such as topic, partition, offset and timestamp of the record, or JSON text.
"""
