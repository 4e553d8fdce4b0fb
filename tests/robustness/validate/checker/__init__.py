"""A checker that shares nothing with the product: no line of the library, of the jobs or of their `verify`.

It reads the source topic and the sinks of a job, parses their records by itself, and judges each row:
lost, repeated, altered or invented. It does not read the checkpoint, so no record, marker or offset log
can mislead it; in return it expects that the job has read its whole source.
"""
