"""Builds the images of the platform, on this machine and without an image registry or a builder.

Not here: running them (infra.kind, charts). Called by the Makefile (`python -m infra.images`); what
is in each image is in `catalogue`, how it is made is in README.md.
"""
