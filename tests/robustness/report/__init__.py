"""The track record: bugs that the robustness tests found."""
