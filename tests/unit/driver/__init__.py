"""The process of a driver's container, without Spark."""
