"""The console in a real browser, on running jobs with a staged fault each."""
