"""Schedules of other tools converted into the form that ``carillon apply`` takes: text in, a document and notices out.

Nothing here reads a file, a clock or the database.

- ``conversion``: converted schedules, their names, and the document that declares them.
- ``cron_timing``: the times of crontab lines and CronJobs, and why some have no counterpart.
- ``crontab``, ``cronjob``, ``ductile``: the three formats.
"""
