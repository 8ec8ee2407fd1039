"""Audits: attacks and measurements on an unlearned model, with controls and a verdict."""
