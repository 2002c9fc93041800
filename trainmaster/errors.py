"""Exceptions that training code raises or catches."""

from __future__ import annotations


class InvalidHP(Exception):
    """Raised inside `core.init` by training code to say that its hyperparameters make no sense.

    The searcher is told, and the trial ends without an error.
    """


class CheckpointNotFound(Exception):
    """As in Determined, for `except`; like those below it is never raised here."""


class EnterpriseOnlyError(Exception):
    pass


class InternalException(Exception):
    pass


class InvalidCheckpointException(Exception):
    pass


class InvalidExperimentException(BaseException):
    pass


class InvalidConfigurationException(InvalidExperimentException):
    pass


class InvalidDataTypeException(InvalidExperimentException):
    pass


class InvalidModelException(InvalidExperimentException):
    pass


class MultipleDownloadsFailed(Exception):
    pass


class NoDirectStorageAccess(Exception):
    pass


class ProxiedDownloadFailed(Exception):
    pass


class SkipWorkloadException(Exception):
    pass


class StopLoadingImplementation(Exception):
    pass


class WorkerError(Exception):
    pass


class WorkerFinishedGracefully(Exception):
    pass


class CheckpointStateException(Exception):
    """A checkpoint is in a state in which its files cannot be read: still being uploaded, failed, or deleted."""
