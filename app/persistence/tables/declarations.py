"""What files declare. Beside the rows and not in them: a release that does not know of it reads the rows as before."""

from uuid import UUID

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from app.persistence.tables.base import Base

LONGEST_NAMESPACE = 63


class ManagedWorkflowRow(Base):
    """The workflow that a name of a namespace stands for."""

    __tablename__ = "managed_workflows"

    namespace: Mapped[str] = mapped_column(String(LONGEST_NAMESPACE), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    workflow_id: Mapped[int] = mapped_column(ForeignKey("workflows.id", ondelete="CASCADE"), unique=True)


class ManagedScheduleRow(Base):
    """The schedule that a name of a namespace stands for."""

    __tablename__ = "managed_schedules"

    namespace: Mapped[str] = mapped_column(String(LONGEST_NAMESPACE), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    scheduled_job_id: Mapped[UUID] = mapped_column(ForeignKey("scheduled_jobs.id", ondelete="CASCADE"), unique=True)
