"""``python -m tests.pages.fab_users PASSWORD``: the users of the FAB auth manager, with one password."""

from __future__ import annotations

import sys

from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder

from tests.pages.rig import LIMITED, ROLES


def main(password: str) -> None:
    """Create a user of each role, and one who may read the tables and no DAG."""
    with get_application_builder() as builder:
        security = builder.sm
        security.sync_roles()
        limited = security.add_role(LIMITED.capitalize())
        security.add_permission_to_role(limited, security.create_permission("can_read", "Assets"))
        for name in (*ROLES["fab"], limited.name):
            user, email = name.lower(), f"{name.lower()}@example.org"
            role = security.find_role(name)
            assert security.add_user(user, name, "User", email, role, password), user


if __name__ == "__main__":
    main(*sys.argv[1:])
