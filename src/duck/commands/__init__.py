"""What each command does, as one library call; `duck.cli` only parses flags and prints.

`options` has the options that several commands share, `stored_runs` opens a stored run.
"""
