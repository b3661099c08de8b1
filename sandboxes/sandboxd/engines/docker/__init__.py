"""Docker as the second engine of sandboxd. See docs/docker.md."""
