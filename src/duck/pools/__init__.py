"""Pools of models for attacks.

`duck.commands.pool` turns options into a plan (`plan`) and builds it (`build`): each model becomes
a file (`files`). `reader` opens what was built.
"""
