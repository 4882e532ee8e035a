"""The image, built from the Dockerfile and run by a container engine: `make image-test`."""
