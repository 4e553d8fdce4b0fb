"""Dead letters: writing those of refused rows, reading them in a topic, replaying their records."""
