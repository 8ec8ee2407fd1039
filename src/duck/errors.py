"""Errors that a user can cause and correct; the command prints them and exits with 2."""

from duck.printable import printable


class DuckError(Exception):
    """The base class. The message says what is wrong with which input, and what to do.

    Control characters in it are escaped.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class UnknownName(DuckError, KeyError):
    """A name that is not registered."""

    def __str__(self) -> str:  # KeyError would print the repr
        return printable(str(self.args[0]))


class BadInput(DuckError, ValueError):
    """A value, file or combination that cannot be used."""


class TooFewOutputs(BadInput):
    """The model has fewer outputs than there are labels."""

    def __init__(self, highest: int, outputs: int) -> None:
        super().__init__(
            f"The labels go up to {highest}, so the model needs {highest + 1} outputs, one per "
            f"class. It has {outputs}. Check that the model was trained on this data set."
        )


class MissingExtra(DuckError, ImportError):
    """An optional dependency that is not installed."""


class Diverged(DuckError):
    """The loss is no longer a finite number."""


class OutOfMemory(DuckError):
    """The device does not have enough memory."""
