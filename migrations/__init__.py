"""Alembic migrations. They are part of the wheel, so that ``carillon migrate`` works from the wheel and the image."""
