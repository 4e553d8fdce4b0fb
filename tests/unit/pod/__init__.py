"""What runs in a driver's container, without Spark."""
