"""Container images: starts and pulls, beside the host image and beside podman."""
