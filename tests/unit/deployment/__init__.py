"""The contract between a driver and its supervisor."""
