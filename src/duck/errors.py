"""Errors that a user can cause and can mend; the command prints them in one line and exits with 2."""

from duck.printable import printable


class DuckError(Exception):
    """What was wrong with which input, and what to do next. Names in it are shown without terminal escapes."""

    def __str__(self) -> str:
        return printable(super().__str__())


class UnknownName(DuckError, KeyError):
    """A name that no table holds."""

    def __str__(self) -> str:  # KeyError would print the repr
        return printable(str(self.args[0]))


class BadInput(DuckError, ValueError):
    """A value, file or combination that cannot be used."""


class TooFewOutputs(BadInput):
    """Some label has no output of the model."""

    def __init__(self, highest: int, outputs: int) -> None:
        super().__init__(
            f"The labels go up to {highest}, and the model has {outputs} outputs: it needs {highest + 1}, one a class, the first for "
            "label 0. Is it the model of these data?"
        )


class MissingExtra(DuckError, ImportError):
    """An optional dependency that is not installed."""


class Diverged(DuckError):
    """The loss is no longer a finite number."""


class OutOfMemory(DuckError):
    """The device has no room for the asked sizes."""
