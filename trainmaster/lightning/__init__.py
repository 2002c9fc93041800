"""A PyTorch Lightning `Trainer` as a trial: one callback. Importing this imports the package `lightning`."""

from trainmaster.lightning._callback import DetCallback

__all__ = ["DetCallback"]
