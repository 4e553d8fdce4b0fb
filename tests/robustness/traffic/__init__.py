"""Jobs, drivers and input of the scenarios."""
