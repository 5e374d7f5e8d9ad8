"""Finds and redacts secrets in the values of options."""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_occ_provider.hudi.writer.options import SIGNATURE_PREFIX

HIDDEN = "***"
_NAMES = (
    r"(?:password|passwd|passphrase|pwd|secret|token|credentials?|jaas(?:[._]config)?|auth[._]?params"
    r"|(?:access|account|api|client|encryption|keystore|private|secret|shared|signing)[._-]?key)"
)
# Only at the end: dfs.block.access.token.enable and fs.s3a.aws.credentials.provider hold no secret.
_KEY = re.compile(
    rf"{_NAMES}$|encryption\.key\.list$|\.basic\.auth\.user\.info$|\.custom\.headers$"
    # Azure appends the account or the container to the name.
    rf"|^(?:spark\.hadoop\.)?fs\.azure\.(?:.*{_NAMES}\.|sas\.)(?!.*provider)",
    re.IGNORECASE,
)
_IN_VALUE = re.compile(
    rf"(?:{_NAMES}|\bsig)=(?P<named>[^\s;&?,]+)|://[^\s/@:]*:(?P<login>[^\s/@]+)@", re.IGNORECASE
)

_REDACTION = "spark.redaction.regex"
# Spark's default (3.5), by which it hides values of its own settings.
_BY_SPARK = re.compile(r"(?i)secret|password|token|access[.]?key")
# What a key that only names a token or a password may have: a switch, a number or a duration.
_PLAIN = re.compile(r"true|false|none|null|-?\d+(?:\.\d+)?\s?\w{0,2}", re.IGNORECASE)
# Where a Secret of Kubernetes is mounted, or which of its keys a variable has.
_NAMES_A_SECRET = re.compile(r"spark\.kubernetes\.(?:driver|executor)\.secret(?:s|KeyRef)\.")
_SHORTEST = 4
_NAMED_BY_SPARK = re.compile(
    r"[\w.-]*(?:secret|password|token|access[.]?key)[\w.-]*=(?P<named>[^\s;&?,]+)", re.IGNORECASE
)


def spark_secrets(properties: Mapping[str, object]) -> list[str]:
    """Return the secret values of Spark's settings, each once.

    :param properties: the settings; ``spark.redaction.regex`` names keys with secrets, too.
    """
    named = [_BY_SPARK, *_pattern(str(properties.get(_REDACTION) or ""))]
    hidden = {
        str(value).strip()
        for key, value in properties.items()
        if key != _REDACTION and any(pattern.search(key) for pattern in named)
    }
    secret = {text for text in hidden if len(text) >= _SHORTEST and not _PLAIN.fullmatch(text)}
    return sorted(secret | {*all_secrets(properties)})


def secret_settings(properties: Mapping[str, str]) -> set[str]:
    """Return the keys of Spark's settings whose values have secrets.

    :param properties: as for ``spark_secrets``.
    """
    redaction = {_REDACTION: properties.get(_REDACTION, "")}
    return {
        key
        for key, value in properties.items()
        if not _NAMES_A_SECRET.match(key) and spark_secrets({**redaction, key: value})
    }


def _pattern(regex: str) -> list[re.Pattern[str]]:
    """Return Spark's regular expression; nothing if Python does not read it."""
    try:
        return [re.compile(regex)] if regex else []
    except re.error:
        return []


def secrets_in(key: str, value: str) -> tuple[str, ...]:
    """Return the secret parts of a value; in a URL or JVM option only the password."""
    if key.startswith(SIGNATURE_PREFIX) or not value:
        return ()
    if _KEY.search(key):
        return (value,)
    return tuple(match["named"] or match["login"] for match in _IN_VALUE.finditer(value))


def all_secrets(options: Mapping[str, object]) -> list[str]:
    """Return the secret parts of all values, each once."""
    return sorted({secret for key, value in options.items() for secret in secrets_in(key, str(value))})


def mask_named(text: str) -> str:
    """Return a text in which what follows ``password=`` and its like is ``***``."""

    def masked(match: re.Match[str]) -> str:
        secret = match["named"] or match["login"]
        return match[0].replace(secret, HIDDEN) if secret else match[0]

    def masked_value(match: re.Match[str]) -> str:
        value = match["named"]
        return match[0] if _PLAIN.fullmatch(value) else f"{match[0][: -len(value)]}{HIDDEN}"

    if "=" not in text and "://" not in text:  # most lines of a log
        return text
    return _NAMED_BY_SPARK.sub(masked_value, _IN_VALUE.sub(masked, text))


def redact(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with their secrets replaced by ``***``."""
    result = {}
    for key, value in options.items():
        for secret in sorted(secrets_in(key, value), key=len, reverse=True):
            value = value.replace(secret, HIDDEN)  # noqa: PLW2901
        result[key] = value
    return result
