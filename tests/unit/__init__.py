"""Tests that need no server, no Java and no network; the folders mirror the sources."""
