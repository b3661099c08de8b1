"""Builds: from a space's wished skill set to a release that serves.

pipeline.py   the steps in order, what ends a build, cancellation and time limits
context.py    what the steps share: the claim on the build's row, the sandbox, the log
start.py      where a build starts from: the current release, the base, or an identical release
steps/        one module a step
ledger.py     the rows that must be right: releases, switches, promotions
recovery.py   what a worker left behind: finish it or undo it
"""
