"""What each code of a refusal is in HTTP; pages, REST, runners and sockets answer by this table."""

from http import HTTPStatus

from accounts.refusals import Code

STATUS = {
    Code.INVALID: HTTPStatus.BAD_REQUEST,
    Code.UNKNOWN_PERSON: HTTPStatus.UNAUTHORIZED,
    Code.FORBIDDEN: HTTPStatus.FORBIDDEN,
    Code.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.TAKEN: HTTPStatus.CONFLICT,
    Code.CONFLICT: HTTPStatus.CONFLICT,
    Code.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Code.TOO_MANY: HTTPStatus.TOO_MANY_REQUESTS,
    Code.BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.FULL: HTTPStatus.INSUFFICIENT_STORAGE,
    Code.ENDED: HTTPStatus.CONFLICT,
}
#: seconds after which the same may be sent again
RETRY_AFTER = {Code.BUSY: 1, Code.FULL: 60}
