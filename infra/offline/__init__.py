"""What exists only for machines without an image registry, or without a Docker engine."""
