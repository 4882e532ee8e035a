"""Tables of calendars, of their contents, and of the schedules that have to be planned again because of one."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index, UniqueConstraint, false, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.persistence.tables.base import Base


class CalendarContentRow(Base):
    """The dates of a calendar. A row is never changed: another content has another digest.

    The contents that a calendar had before stay as long as the history, by which ``explain`` judges slots of the past.
    """

    __tablename__ = "calendar_contents"

    digest: Mapped[str] = mapped_column(primary_key=True)
    timezone: Mapped[str]
    dates: Mapped[list[Any]]
    ics: Mapped[str | None]
    holidays: Mapped[str | None]
    # When a calendar last had, or ceased to have, this content.
    used_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp(), index=True)


class CalendarRow(Base):
    """A calendar: a name that schedules use, and the content that it has now."""

    __tablename__ = "calendars"
    __table_args__ = (
        UniqueConstraint("user_profile_id", "name"),
        CheckConstraint("name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'", name="name_known"),
        Index("uq_calendars_public_name", "name", unique=True, postgresql_where=text("public")),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"))
    # The owner's id again if the owner is a team.
    team_id: Mapped[int | None]
    name: Mapped[str] = mapped_column(index=True)
    public: Mapped[bool] = mapped_column(server_default=false())
    digest: Mapped[str] = mapped_column(ForeignKey("calendar_contents.digest"), index=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class CalendarReplanRow(Base):
    """A change of what the name of a calendar stands for: schedules that use it are planned again, some at a time.

    A row for each change, so that a change never waits for the planning that an earlier one has caused.
    """

    __tablename__ = "calendar_replans"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    name: Mapped[str]
    # The last schedule that was looked at; None before the first.
    position: Mapped[UUID | None]
    # Who made the change.
    user_profile_id: Mapped[int | None]
    author: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
