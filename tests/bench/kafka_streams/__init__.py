"""Kafka Streams as a contender."""
