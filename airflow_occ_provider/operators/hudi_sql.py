"""``HudiSqlOperator``: Spark SQL as a safe concurrent writer of one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_occ_provider.attempts.jobs import Job, Sql
from airflow_occ_provider.attempts.sql_text import refuse_sql
from airflow_occ_provider.attempts.typed_values import has_template
from airflow_occ_provider.attempts.write_spec import refuse_foreign
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

_FOREIGN = ("application", "java_class", "application_args")


class HudiSqlOperator(HudiWriteOperator):
    """Run statements of Spark SQL as a safe concurrent writer of one Hudi table.

    One of the statements writes the table; where it reads the table too, ``isolation="serializable"`` is
    implied. The table has to exist. The result and the other parameters are those of
    ``HudiWriteOperator``, and so is what a kill, a clear, a retry and a time-out do::

        HudiSqlOperator(
            task_id="correct",
            table="s3a://lake/fares",
            sql="UPDATE fares SET cents = cents + 10 WHERE city = 'rome'",
        )

    :param sql: the statements, a text or the path of an ``.sql`` file. (templated)
    :param table_name: the name of the table in ``sql``; by default the one in its
        ``hoodie.properties``. (templated)
    """

    template_fields: Sequence[str] = (*HudiWriteOperator.template_fields, "sql", "table_name")

    def __init__(self, *, sql: str, table_name: str | None = None, **kwargs: Any) -> None:
        refuse_foreign(kwargs, _FOREIGN, "the job is sql, and templates are its arguments")
        super().__init__(application="", application_args=None, **kwargs)
        self.sql = sql
        self.table_name = table_name
        self.template_ext = (".sql",)  # of no other operator: arguments that end in it stay as they are
        self.take_arguments()
        if not sql.endswith(".sql") and not has_template([sql, self.table, table_name]):
            refuse_sql(sql, self.table, table_name)

    def refuse_missing_job(self) -> None:
        """Refuse nothing: ``sql`` is required."""

    def job(self, context: Context) -> Job:  # noqa: ARG002
        """Return the statements."""
        return Sql(self.sql, self.table, self.table_name)
