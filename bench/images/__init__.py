"""Container images: starts from them and pulls of them, beside the machine's own image and beside podman."""
