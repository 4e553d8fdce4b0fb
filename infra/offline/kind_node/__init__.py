"""A node image for kind that is built here, the engine that runs it, and its closed network."""
