"""What is done with a whole checkpoint: savepoints of it, and stopping the job that runs on it."""
