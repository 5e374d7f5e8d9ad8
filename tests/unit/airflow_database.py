"""An Airflow database with the DAGs of two teams, and the users of Airflow's own auth manager."""

from __future__ import annotations

import uuid

from airflow import models, settings
from airflow.api_fastapi.app import init_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.base import Base
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.team import Team
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.types import DagRunType
from sqlalchemy import insert

OURS, THEIRS = "ours", "theirs"


def create():
    """Create all tables, and a DAG of each team, named after it."""
    models.import_all_models()
    Base.metadata.create_all(settings.engine)
    with create_session() as session:
        for team in (OURS, THEIRS):
            bundle = DagBundleModel(name=team)
            bundle.teams = [Team(name=team)]
            session.add(bundle)
            session.flush()
            session.add(DagModel(dag_id=team, bundle_name=team, fileloc=f"/{team}.py"))


def drop():
    Base.metadata.drop_all(settings.engine)


def push(dag_id, run_id, task_id, **values):
    """Store XComs of a task instance as the execution API does."""
    task = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id}
    with create_session() as session:
        if session.query(DagRun).filter_by(dag_id=dag_id, run_id=run_id).first() is None:
            session.add(DagRun(dag_id=dag_id, run_id=run_id, run_type=DagRunType.MANUAL))
            session.flush()
        if session.query(TaskInstance.id).filter_by(**task).first() is None:
            row = {"id": uuid.uuid4(), "map_index": -1, "pool": "default_pool", "pool_slots": 1}
            session.execute(insert(TaskInstance).values(**task, **row))
        for key, value in values.items():
            XComModel.set(key, value, **task, serialize=False, session=session)


def token(role, *teams):
    """Return the token that Airflow gives a user."""
    user = SimpleAuthManagerUser(username=f"a_{role}", role=role, teams=list(teams))
    return init_auth_manager().generate_jwt(user)
