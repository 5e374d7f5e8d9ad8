"""Requests to the web services of YARN, which may be secured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from airflow_occ_provider.errors import ConfigurationError, install_extra

AUTHENTICATION_FIELD = "yarn_authentication"
"""The key of a connection's extra that says how YARN's web services know their callers."""
AUTHORITIES_FIELD = "yarn_certificate_authorities"
"""The key of a connection's extra with the certificates of the authorities that they use."""
KERBEROS = "kerberos"


@dataclass(frozen=True, slots=True)
class YarnAccess:
    """How this process and the web services of a cluster know each other.

    :param authentication: ``kerberos`` for SPNEGO with this machine's ticket; empty for none.
    :param authorities: path of a PEM file with the certificates of their authorities; empty for those
        of this machine.
    """

    authentication: str = ""
    authorities: str = ""

    @classmethod
    def of(cls, extra: Mapping[str, Any]) -> YarnAccess:
        """Read the extra of a connection, or what ``to_json`` has returned.

        :raises ConfigurationError: if a value is none that can be used.
        """
        access = cls(str(extra.get(AUTHENTICATION_FIELD) or ""), str(extra.get(AUTHORITIES_FIELD) or ""))
        if access.authentication not in ("", KERBEROS):
            raise ConfigurationError(
                AUTHENTICATION_FIELD,
                f"{access.authentication!r} is not known",
                remedy=f'give "{KERBEROS}", or leave it out for a cluster that is not secured',
            )
        if access.authorities and not Path(access.authorities).is_file():
            raise ConfigurationError(
                AUTHORITIES_FIELD,
                f"{access.authorities} is not a file",
                remedy="give the path of a PEM file on the workers and triggerers",
            )
        return access

    def to_json(self) -> dict[str, str]:
        """Return the fields by which another process has the same access."""
        fields = {AUTHENTICATION_FIELD: self.authentication, AUTHORITIES_FIELD: self.authorities}
        return {name: value for name, value in fields.items() if value}

    def ask(
        self, method: str, url: str, *, timeout_s: float, body: Mapping[str, str] | None = None
    ) -> requests.Response:
        """Return an answer, of any status.

        No redirection is followed: a server may name any host, and a standby ResourceManager redirects
        too.

        :param timeout_s: until the connection is made, and between two parts of the answer.
        :param body: for a request that changes something.
        :raises OSError: if there is none, or the server is not trusted.
        :raises ConfigurationError: if Kerberos is needed and not installed.
        """
        return requests.request(
            method,
            url,
            json=body,
            headers={"Accept": "application/json, text/plain"},
            auth=_spnego() if self.authentication else None,
            verify=self.authorities or True,
            allow_redirects=False,
            timeout=timeout_s,
        )


NOT_SECURED = YarnAccess()


def _spnego() -> Any:
    """Return what shows this machine's ticket.

    :raises ConfigurationError: if its package is not installed.
    """
    try:
        from requests_gssapi import OPTIONAL, HTTPSPNEGOAuth
    except ImportError as error:
        raise ConfigurationError(
            AUTHENTICATION_FIELD,
            "it asks for Kerberos, whose package is not installed",
            remedy=f"{install_extra(KERBEROS)} on the workers and triggerers",
        ) from error
    # A server that does not prove itself back is known by its certificate, if at all.
    return HTTPSPNEGOAuth(mutual_authentication=OPTIONAL, opportunistic_auth=True)
