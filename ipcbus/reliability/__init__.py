"""The protocol that makes UDP reliable: loss detection, NAKs, retransmissions, rate limits, registration.

The package has no input, output or clock: callers pass in the time and a `random.Random`, and get numbers and bytes
back, so that a thousand seeds of loss take seconds. Rules and defaults are those of Ultra Messaging's LBT-RM and
LBT-RU, except where its shipped defaults break its own rules.
"""
