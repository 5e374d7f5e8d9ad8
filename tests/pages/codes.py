"""Which user gets which route."""

from __future__ import annotations

import http.client
from urllib.parse import quote

from tests.pages.rig import LIMITED, ROLES, SignedInAirflow

_TIMEOUT_S = 60


def wrong_codes(airflow: SignedInAirflow, key: str, run_id: str, manager: str) -> list[str]:
    """Return what was answered otherwise than expected.

    :param key: of a table.
    :param run_id: of a run of the task that wrote it.
    :param manager: the auth manager.
    """
    routes = {
        "/hudi/": 200,
        f"/hudi/t/{key}/": 200,
        f"/hudi/t/{key}": 307,
        "/hudi/t/unknown/": 404,
        f"/hudi/attempts/load_trips/{quote(run_id, safe='')}/load/-1": 200,
        "/hudi/static/page.css": 200,
    }
    tokens = {role.lower(): airflow.token(role.lower()) for role in ROLES[manager]}
    expected = {(user, route): code for user in tokens for route, code in routes.items()}
    expected |= {("without a token", route): 401 for route in routes}
    expected |= {("forged", route): 403 for route in routes}
    if manager == "fab":
        tokens[LIMITED] = airflow.token(LIMITED)
        expected |= {(LIMITED, r): 403 if "attempts" in r else code for r, code in routes.items()}
    tokens["forged"] = f"{tokens['admin'].rpartition('.')[0]}.AAAA"
    answers = {one: _get(airflow.port, one[1], tokens.get(one[0])) for one in expected}
    print(f"{len(answers)} pairs of user and route")
    wrong = [
        f"{user}, {route}: {code} instead of {expected[user, route]}"
        for (user, route), (code, _) in answers.items()
        if code != expected[user, route]
    ]
    for (user, route), (_, text) in answers.items():
        is_limited, names = user == LIMITED, "load_trips" in text
        if route == f"/hudi/t/{key}/" and user in tokens and user != "forged" and names == is_limited:
            wrong.append(f"{user}, {route}: {'names' if names else 'does not name'} the tasks")
    return wrong


def _get(port: int, route: str, token: str | None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", route, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
