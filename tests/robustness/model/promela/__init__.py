"""The commit protocol as a Promela model, which Spin searches completely; see README.md."""
