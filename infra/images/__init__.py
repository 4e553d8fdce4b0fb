"""The container images of the platform: `python -m infra.images`, behind `make images`.

`NAME/Dockerfile` is the recipe of an image. This package prepares what it copies, runs BuildKit,
adds the SBOM and saves the image as an archive.
"""
