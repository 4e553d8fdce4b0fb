"""The charts: rendered by helm, taken by a real API server, and what they configure run for real."""
