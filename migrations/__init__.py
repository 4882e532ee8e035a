"""Alembic migrations. They are packaged, so that ``carillon migrate`` works from the wheel and the image."""
