"""Tests of the charts: rendered by helm, accepted by a real API server, and run by real servers."""
