"""What suggests a secret: names of variables, and passwords within values (pure)."""

from __future__ import annotations

import re

_NAME = re.compile(
    r"(?:^|_)(?:secret|password|passwd|passphrase|pass|pwd|token|auth|credentials?|webhook|apikey|jwt|dsn"
    r"|conn(?:ection)?_?str(?:ing)?|(?:api|access|private|account|encryption|signing|ssh)_?key|key)(?:_|$|[0-9])"
    r"|_pat$|(?:password|passwd|token|secret|accesskey|sshkey|privatekey|apikey|connectionstring)$",
    re.IGNORECASE,
)
_PASSWORD_IN_ADDRESS = re.compile(r"(?<=://)([^/\s:@]*):[^/\s@]+(?=@)")
_WEBHOOK_ADDRESS = re.compile(
    r"(https://(?:hooks\.slack\.com/(?:services|workflows)|(?:\w+\.)?discord(?:app)?\.com/api/webhooks))/[^\s'\"]+",
    re.IGNORECASE,
)
#: of storage accounts and databases: `AccountName=ada;AccountKey=...;EndpointSuffix=...`
_IN_CONNECTION = re.compile(
    r"((?:^|;)\s*(?:AccountKey|SharedAccessKey|SharedAccessSignature|Password|Pwd)\s*=)[^;\s]+"
)


def suggests_secret(variable: str) -> bool:
    """Whether the name of an environment variable suggests that its value is a secret."""
    return bool(_NAME.search(variable))


def without_passwords(text: str, mask: str) -> str:
    """Addresses and connection strings lose passwords, and addresses of webhooks what lets one post there."""
    if "://" in text:
        text = _WEBHOOK_ADDRESS.sub(rf"\1/{mask}", _PASSWORD_IN_ADDRESS.sub(rf"\1:{mask}", text))
    return _IN_CONNECTION.sub(rf"\1{mask}", text) if "=" in text else text
