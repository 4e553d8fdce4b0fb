"""Tests of pod manifests."""
