"""A Hugging Face `Trainer` as a trial: one callback. Importing this imports the package `transformers`."""

from trainmaster.transformers._hf_callback import DetCallback, overwrite_arguments

__all__ = ["DetCallback", "overwrite_arguments"]
