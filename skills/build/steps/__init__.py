"""The steps of a build, one module each, every one with `async def run(context)`.

Each is idempotent: run again, in the same sandbox or in a fresh one, it ends in the same state.
"""
