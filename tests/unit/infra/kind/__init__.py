"""infra/kind without a cluster: what it writes, and how it decides."""
