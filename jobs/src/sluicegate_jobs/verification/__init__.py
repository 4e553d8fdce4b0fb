"""Verification of the packaged jobs: recomputes what the sinks must hold, in plain Python, and compares."""
