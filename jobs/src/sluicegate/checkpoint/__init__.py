"""What is done to a checkpoint as a whole, beside the epochs that are written into it."""
