"""The HTTP surface of sandboxd: thin translations between the wire and the service."""
