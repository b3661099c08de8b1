"""The steps of a build, one module each, every one with `async def run(context)`.

Each may be run again from its beginning in a fresh sandbox; what they decide is in the build's row.
"""
