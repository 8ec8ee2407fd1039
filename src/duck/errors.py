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
            f"The labels go up to {highest}, and the model has {outputs} outputs: it needs "
            f"{highest + 1}, one a class, the first for label 0. Is it the model of these data?"
        )


class MissingExtra(DuckError, ImportError):
    """An optional dependency that is not installed."""


class Diverged(DuckError):
    """The loss is no longer a finite number."""


class OutOfMemory(DuckError):
    """The device does not have enough memory."""
