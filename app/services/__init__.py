"""The use cases behind the API, the command line and the actions.

Each use case authorises first, works in one transaction, and rings after its commit. A process has one service of each
kind. Services know neither HTTP nor SQL: they take inputs, return views, and get structs from ``app.persistence``.

admission         quotas, limits, owners and secrets: whether an object may be stored
schedules         change schedules                      schedule_queries   read them, without Redis
bulk_operations   operations on many schedules          slots              slots as strips show them
workflows         workflows and breakers                webhooks, notifications, secrets, users, teams, executions
limits            named limits                          calendars, skips, backfills   dates, slots left out, past slots
edit_plans        what the edit of one schedule does    fleet_plans        what a change of many does
upcoming          coming fires                          forecasts, spread  the load to come, and how to flatten it
identities        users of identity providers           identity_providers   their metadata and keys
authentication    who a request comes from              sessions, single_sign_on   logins of browsers
plugins           start plugins                         plugin_schedules, plugin_wishes   their schedules
action_ports      what actions may use
oidc_keys         the issuer of the tokens of calls, and the rotation of its keys
catalog           actions, triggers, entity types
agent_leases      what agents may make, and until when
audit             the audit log                         removal            users and teams that are deleted
overview          counts, figures, workers              live               the stream of pulses
system            health, gauges, switches, cron ping   declarations       ``carillon apply`` and ``carillon export``
imports           schedules of other tools, as files for ``carillon apply``
inputs, views     what comes in, what goes out          listing            pages of encoded views
"""
