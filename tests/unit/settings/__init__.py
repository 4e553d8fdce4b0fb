"""Settings: their schema, and the restart strategies."""
