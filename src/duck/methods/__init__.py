"""Unlearning methods: a file and an import line each. Outside packages add theirs under the entry point `duck.methods`."""

from duck.methods.base import METHODS, preset
from duck.methods.duck import Duck
from duck.methods.original import Original
from duck.methods.retrained import Retrained

__all__ = ["METHODS", "Duck", "Original", "Retrained", "preset"]
