"""What every server of the E2B protocol here shares: sandboxd, and the gateway in front of any backend."""
