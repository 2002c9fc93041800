"""What the Python client raises when the server refuses a request or is away, by the names that scripts catch.

All of them are BadRequestException, and `message` (also `str()`) is the server's own sentence.
"""

from __future__ import annotations

from typing import Any, Optional


class BadRequestException(Exception):
    """Base of all refusals; `message` is a sentence."""

    def __init__(self, message: str, *args: Any) -> None:
        super().__init__(message, *args)
        self.message = message

    def __str__(self) -> str:
        return self.message


class MasterNotFoundException(BadRequestException):
    """No answer came: the server is away, the address is wrong, or its certificate is not trusted."""


class APIException(BadRequestException):
    """The server refused the request with `status_code`; `response_error` is the error of its answer, if it has one."""

    def __init__(self, message: str, status_code: int = 500, response_error: Optional[Any] = None) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.response_error = response_error


class NotFoundException(APIException):
    """404: there is no such thing, or this user may not know of it."""

    def __init__(self, message: str, status_code: int = 404, response_error: Optional[Any] = None) -> None:
        super().__init__(message, status_code, response_error)


class ForbiddenException(BadRequestException):
    """403: logged in, but not allowed to do this."""


class UnauthenticatedException(BadRequestException):
    """401: nobody is logged in, or the login has expired."""


class InvalidCredentialsException(UnauthenticatedException, ForbiddenException):
    """Name and password do not belong together; Determined's client calls that forbidden."""
