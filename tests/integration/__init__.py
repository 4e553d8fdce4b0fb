"""Tests against a real Kafka and a real MySQL or MariaDB."""
