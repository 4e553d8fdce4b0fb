"""The benchmark of the console: a fleet of real checkpoints, a browser's first paint, and many viewers."""
