"""Rings: everything that Redis is used for, and the only importer of arq.

Messages wake workers up; they decide nothing and may be lost, late or doubled. Job ids, the enqueue, the worker's
loop, the settings for the stock ``arq`` command, and the rate limits live here.
"""
