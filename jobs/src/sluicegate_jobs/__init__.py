"""The packaged jobs: examples to copy, in a folder or a short file each. Not a library."""
