"""Checks: functions that train to find out something, or look before training.

Belongs here: check, doctor, verify_resume, reproduce.
May import: everything else of training, and everything below it.
"""
