"""Builds: from a space's wished skill set to a release that serves.

pipeline.py   the steps in order, what ends a build, cancellation and time limits
claim.py      the build's row: who may write it, its steps, its end
context.py    what the steps share: the sandbox, the log, running commands
start.py      where a build starts from: the current release or the base
steps/        one module a step
checker.py    sent into the sandbox by the verification
snapshots.py  finding snapshots at the provider
ledger.py     the rows that must be right: releases, switches, promotions
recovery.py   what a worker left behind: finish it or undo it
settings.py   limits, and where builds may download from
"""
