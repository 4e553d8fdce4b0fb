"""What a driver tells others of itself."""
