"""A model of the commit protocol: simulated drivers, sinks and schedules."""
