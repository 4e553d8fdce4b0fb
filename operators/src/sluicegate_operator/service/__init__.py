"""The operator's process: what is looked at when, by whom, and how it is seen from outside."""
