"""The report of a soak is right. Nothing here starts a cluster."""
